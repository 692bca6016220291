"""Drafts from crontabs, of users and of the system."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from duly.cli.importers.draft import Draft, Drafts, digest, task_name
from duly.core.cron import parse_cron
from duly.core.dialects import translate
from duly.errors import InvalidCronExpressionError

_VARIABLE: Final = re.compile(r"""\s*(["']?)([A-Za-z_]\w*)\1\s*=\s*(.*?)\s*$""")
_ENTRY: Final = re.compile(r"\s*-?(@every[ \t]+\S+|@\w+|(?:[^\s@]\S*[ \t]+){4}\S+)[ \t]+(\S.*)$")
_USER: Final = re.compile(r"[a-z_][a-z0-9_.-]*[$]?")
_WRAPPERS: Final = frozenset(
    {"cd", "test", "[", "nice", "ionice", "sudo", "env", "exec", "time", "timeout", "flock", "chronic", "command", "sh",
     "bash", "/bin/sh", "/bin/bash", "python", "python3", "if", "then", "root"}
)  # fmt: skip
_SUBCOMMAND: Final = re.compile(r"[A-Za-z][\w:.-]*")
_GO_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_NOT_PASSED_ON: Final = frozenset({"CRON_TZ", "MAILTO", "MAILFROM"})

_DIFFERENCES: Final = (
    "a minute missed while the host or the scheduler was down is served later, once; cron forgets it",
    "a failed command is retried after RETRY_DELAY until it succeeds; cron waits for its next time",
    "a task never overlaps itself: a due minute during a run starts when that run ends; cron starts a second copy",
    "minutes that daylight saving skips run nothing; cron runs such a job right after the change",
    "in a repeated hour every task runs the first time only; cron repeats jobs whose hour is '*'",
    "output is not mailed: it goes where the scheduler's output goes, and MAILTO does nothing",
    "all commands run as the user of the scheduler's process, with cron's few variables and in the home folder",
)

_HELPERS: Final = '''
def shell(command: str, stdin: str | None = None, /, **variables: str) -> Callable[[], None]:
    """A callback that runs a command as cron did: in a shell, in the home folder, with few variables set."""
    home = str(Path.home())
    environment = {"HOME": home, "LOGNAME": getpass.getuser(), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", **variables}

    def run() -> None:
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin, "text": True}
        subprocess.run([environment["SHELL"], "-c", command], check=True, cwd=home, env=environment, **given)

    return run
'''


def read_crontab(text: str, origin: str, *, system: bool | None, is_user: Callable[[str], bool]) -> Drafts:
    """The lines of a crontab; `system` says whether a user stands before each command, None to find out."""
    lines = list(_logical_lines(text))
    if system is None:
        system = _names_users(lines, is_user)
    variables: dict[str, str] = {}
    drafts = []
    for number, line in lines:
        if variable := _VARIABLE.match(line):
            variables[variable[2]] = _unquoted(variable[3])
        else:
            drafts.append(_draft(number, line, dict(variables), system=system))
    imports = (
        "import getpass",
        "import subprocess",
        "from collections.abc import Callable",
        "from pathlib import Path",
    )
    kind = "system" if system else "user"
    return Drafts(f"the {kind} crontab {origin}", drafts, _DIFFERENCES, imports, _HELPERS)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _names_users(lines: list[tuple[int, str]], is_user: Callable[[str], bool]) -> bool:
    commands = [match[2].split() for _, line in lines if not _VARIABLE.match(line) and (match := _ENTRY.match(line))]
    return bool(commands) and all(len(words) > 1 and is_user(words[0]) for words in commands)


def _draft(number: int, line: str, variables: dict[str, str], *, system: bool) -> Draft:
    draft = Draft(f"line {number}: {line.strip()}", f"line-{number}")
    match = _ENTRY.match(line)
    if match is None:
        draft.obstacles.append("neither five fields and a command, nor a macro and a command, nor NAME=value")
        return draft
    schedule, command = match[1], match[2].rstrip()
    if line.lstrip().startswith("-"):
        draft.notes.append("the '-' before it, which keeps some crons from logging it, is dropped")
    if system:
        user, _, command = command.partition(" ")
        command = command.strip()
        if not command or not _USER.fullmatch(user):
            draft.obstacles.append(f"a system crontab has a user before the command, and {user!r} is not one")
            return draft
        draft.notes.append(f"ran as {user}; here it runs as the user of the scheduler's process")
    _read_schedule(draft, schedule)
    _read_zone(draft, variables)
    command, stdin = _split_at_percent(command)
    if stdin is not None:
        draft.notes.append(
            "'%' in the command: the text after the first is its standard input, further ones are line breaks"
        )
    draft.name = _name_of(command) or f"command-{digest(command)}"
    given = {key: value for key, value in variables.items() if key not in _NOT_PASSED_ON}
    arguments = [repr(command)] + ([repr(stdin)] if stdin is not None else [])
    arguments += [f"{key}={value!r}" for key, value in given.items()]
    draft.call = f"shell({', '.join(arguments)})"
    return draft


def _read_schedule(draft: Draft, schedule: str) -> None:
    macro, _, duration = schedule.partition(" ")
    if macro.lower() == "@every" and (parts := _GO_DURATION.fullmatch(duration.strip())):
        hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        draft.set_interval(timedelta(hours=hours, minutes=minutes, seconds=seconds))
        return
    try:
        parse_cron(schedule)
    except InvalidCronExpressionError as fault:
        translation = translate(schedule)
        if translation is None:
            draft.obstacles.append(f"{fault.details['field']} field {fault.details['reason']}")
            return
        draft.obstacles += [remark.text for remark in translation.obstacles]
        draft.posix = translation.posix
        changed = [f"{schedule[each.begin : each.end]}: {each.text}" for each in translation.rewritten]
        if translation.posix is not None:
            draft.notes.append(f"rewritten from {schedule!r} ({'; '.join(changed)})")
    else:
        draft.posix = " ".join(schedule.split())
        _, _, day, _, weekday = schedule.split()
        if day != "*" and weekday != "*":
            draft.notes.append("both day fields are restricted: either is enough, here as in cron")


def _read_zone(draft: Draft, variables: dict[str, str]) -> None:
    zone = variables.get("CRON_TZ")
    if zone:
        draft.zone, draft.zone_origin = zone, "CRON_TZ"
    elif zone is not None:
        draft.notes.append("CRON_TZ is empty: the zone of its times is the host's, here as in cron")
    if "TZ" in variables:
        draft.notes.append(f"TZ={variables['TZ']} is a variable of the command, and not the zone of its times")


def _split_at_percent(command: str) -> tuple[str, str | None]:
    """The command and its standard input: an unescaped '%' ends the command, and is a line break in the input."""
    parts = [part.replace(r"\%", "%") for part in re.split(r"(?<!\\)%", command)]
    return parts[0].rstrip(), None if len(parts) == 1 else "\n".join(parts[1:]) + "\n"


def _name_of(command: str) -> str:
    """A name for a command: the first program in it that does not just start another, and its subcommand.

    The name follows from the command alone, wherever its line stands, so that a second import gives it again.
    """
    words = re.findall(r"[;&|()<>]+|[^\s;&|()<>]+", command)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        bare = word.strip("\"'")
        if not bare or bare in _WRAPPERS or "=" in bare or bare.startswith(("-", "$", "`")) or bare.isdigit():
            continue
        stem = task_name(bare.rstrip("/").rsplit("/", 1)[-1])
        if stem and not (command.startswith("cd ") and command.split()[1].strip("\"'") == bare):
            stem = re.sub(r"\.(sh|py|pl|rb|php)$", "", stem)
            return task_name(f"{stem}-{following}") if _SUBCOMMAND.fullmatch(following) else stem
    return ""


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'" else value
