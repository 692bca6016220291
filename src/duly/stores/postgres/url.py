"""How a shared store is named: a URL, which may hold a password, and a name for people, which never does.

psycopg is imported when a URL is read: that a text is a URL, and not a file, must be known without it. A URL with a
slip in it is taken for a URL, too, and refused without being quoted: as a path it would be shown with its password.
"""

import os
import re
import string
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from duly.errors import StoreError

DEFAULT_SCHEMA: Final = "duly"
NAME_MAX: Final = 63
"""Bytes of a name in PostgreSQL; a longer one would be cut, and two schemas could become one."""

_AROUND: Final = "'\"" + string.whitespace
_FORMS: Final = (
    "write postgresql://user@host/database; a path with : and @ in it begins with / or ./, and no folder in it ends "
    "with :"
)
_BARE: Final = "leave out quotes and blanks around it; docker --env-file, for one, keeps quotes"

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)

# `Path` makes one slash of two, so a URL that became a path is known by what follows: a user and a password.
_URL_IN_PATH: Final = re.compile(
    r".*:// | .*:/[^/]*:.*@ | postgres(ql)?/+[^/]*:.*@", re.IGNORECASE | re.DOTALL | re.VERBOSE
)
_URL: Final = re.compile(
    r"""
    [\s'"]* postgres(ql)? (: | \+ | //)       # whatever follows it, and with quotes or blanks before it
    | [\s'"]+ [a-z][a-z0-9+.-]* :/            # another scheme, with quotes or blanks before it
    | (?!\.{0,2}/) .* (:.*@ | password\s*=)  # no scheme, or libpq's list of parameters; not /a:b@c nor ./a:b@c
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where a shared store is; `parameters` are libpq's, the password included if the URL has one."""

    parameters: dict[str, str]
    schema: str

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def address(self) -> str:
        """The URL for people: no password and no query part."""
        known = self.parameters
        user = f"{quote(known['user'])}@" if "user" in known else ""
        hosts = known.get("host", known.get("hostaddr", "")).split(",")
        ports = known.get("port", "").split(",")
        if len(ports) < len(hosts):
            ports = ports[:1] * len(hosts)
        places = ",".join(_host(host) + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=False))
        database = f"/{quote(known['dbname'])}" if "dbname" in known else ""
        return f"postgresql://{user}{places}{database}"

    @property
    def name(self) -> str:
        """The store as messages, events and commands name it (SPEC 9.22)."""
        service = f"service {self.parameters['service']}, " if "service" in self.parameters else ""
        return f"{self.address} ({service}schema {self.schema})"


def _host(host: str) -> str:
    if host.startswith("/"):
        return quote(host, safe="")  # a folder with a socket
    return f"[{host}]" if ":" in host else host


def read_url(url: str, schema: str = DEFAULT_SCHEMA) -> StoreUrl:
    """A URL as the user wrote it; what is wrong with it is said without quoting it, because it may hold a password."""
    check_schema(schema)
    scheme = _SCHEME.match(url)
    kind, rest = (scheme[1].lower(), url[scheme.end() :]) if scheme else ("", "")  # schemes ignore case, libpq does not
    plain_kind, plus, _ = kind.partition("+")
    if plus and plain_kind in ("postgresql", "postgres"):
        raise StoreError(
            f"A URL that begins with {kind}:// is SQLAlchemy's",
            store=f"{kind}://...",
            hint=f"write {plain_kind}:// instead: duly connects by psycopg itself",
        )
    if kind not in ("postgresql", "postgres"):
        raise _misspelt(url)
    if url != url.rstrip(_AROUND):
        raise _unreadable("it ends with a quote or a blank", _BARE)
    if rest.partition("?")[0].count("@") > 1:
        raise _unreadable("it has more than one @")
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as cause:
        raise StoreError(
            "psycopg is not installed, which connects to PostgreSQL",
            store=f"{kind}://...",
            hint='pip install "duly[postgres]"',
            cause=cause,
        ) from None
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(f"{kind}://{rest}").items() if value is not None}
    except ProgrammingError:
        raise _unreadable("libpq cannot read it") from None  # its message quotes what it could not read
    if not all(port.isdecimal() or not port for port in found.get("port", "").split(",")):
        raise _unreadable("its port is not a number")
    if "@" in rest.partition("?")[0].partition("/")[2]:
        raise _unreadable("there is an @ after the first /")
    if "," in found.get("host", ""):
        # Of several hosts one is the primary: a standby must not be taken for it.
        found.setdefault("target_session_attrs", "read-write")
    return StoreUrl(found, schema)


def is_url(text: str) -> bool:
    """Whether a text that names a store means a URL, and not a file; `read_url` refuses what is nearly one."""
    return _URL.match(text) is not None or _URL_IN_PATH.match(text) is not None


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuse the path of a file that was a URL once: messages quote paths, and this one may hold a password."""
    text = os.fspath(path)
    if _URL_IN_PATH.match(text):
        raise _misspelt(text)


def _misspelt(text: str) -> StoreError:
    scheme = _SCHEME.match(text)
    found = f", not with {scheme[1]}://" if scheme else ""
    bare = text == text.strip(_AROUND)
    return StoreError(
        f"A store is named by a path, or by a URL that begins with postgresql://{found}",
        store=f"{scheme[1]}://..." if scheme else "...",
        hint=_FORMS if bare else _BARE,
    )


def _unreadable(
    problem: str,
    hint: str = "in user and password write %40 for @, %2F for / and %3A for :; or leave the password to ~/.pgpass",
) -> StoreError:
    return StoreError(f"The URL of the store cannot be read: {problem}", store="postgresql://...", hint=hint)


def check_schema(schema: str) -> None:
    """Refuse a name that PostgreSQL would cut, or that belongs to another."""
    problem = None
    if not schema or "\0" in schema or not schema.isprintable():
        problem = "must be printable text that is not empty"
    elif len(schema.encode("utf-8", "replace")) > NAME_MAX:
        problem = f"is longer than {NAME_MAX} bytes"
    elif schema.startswith("pg_") or schema in ("public", "information_schema"):
        problem = "is taken: public, information_schema and all names that begin with pg_ are PostgreSQL's own"
    if problem is not None:
        raise StoreError(f"The schema's name {problem}", store=repr(schema), hint='the default is schema="duly"')
