"""Pages that are sessions: files to write, commands to type and what they print, from the top of a page to its end.

A block whose first line is the name of a file (`# tasks.py`) is that file. A block marked `console` has commands after
`$`, and what they print. A page is replayed as one session, in one folder; the pages of the tutorial are one session
together. Commands run in sh; `duly run` runs on a terminal, until its first run has ended and Ctrl-C is pressed. A
command in the background has run far enough when its log "has a line with" what the page names in these words. What
depends on the moment is compared by its form, as in tests/cli/pages.py.

`python -m tests.docs.pages` writes new output into the pages; with `--all`, even where the form is the same.
"""

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cli.pages import Block, Step, as_elsewhere, in_background, matches, run_command, session
from tests.cli.program import ROOT, Terminal
from tests.cli.test_pages import wait_for_the_middle_of_a_minute

DOCS = ROOT / "docs"
ZONE = "Europe/Berlin"

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# ([\w-]+\.(?:ini|py|txt))\n")
_AWAITED = re.compile(r"has a line with `([^`]+)`")


class Fence(NamedTuple):
    """A block of a page between two fences."""

    page: Path
    number: int
    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that it shows."""
        found = _NAME.match(self.text)
        return found[1] if found else None


def fences(page: Path) -> list[Fence]:
    """The blocks of a page, in order."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [Fence(page, number, kind, text) for number, (kind, text) in enumerate(found, 1)]


TUTORIAL = tuple(sorted((DOCS / "tutorial").glob("[0-9]-*.md")))
SESSIONS: Sequence[Sequence[Path]] = (
    TUTORIAL,
    *(
        (page,)
        for page in sorted((DOCS / "moving").glob("*.md"))
        if any(each.kind == "console" for each in fences(page))
    ),
    (DOCS / "why-refuse.md",),
)


def files_before(fence: Fence) -> dict[str, str]:
    """The files that a reader has written when a block is reached, those of earlier pages of its session included."""
    pages = next((session for session in SESSIONS if fence.page in session), (fence.page,))
    earlier = [each for page in pages if page < fence.page for each in fences(page)]
    earlier += [each for each in fences(fence.page) if each.number < fence.number]
    return {each.file: each.text for each in earlier if each.file is not None}


# --- replaying -------------------------------------------------------------------------------------------------------


def needs_real_time(pages: Sequence[Path]) -> bool:
    """Whether a scheduler runs in the session, for as long as the wall clock says."""
    commands = [step.command for page in pages for each in fences(page) for step in steps_of(each)]
    return any(command.startswith("duly run") and "--once" not in command for command in commands)


def steps_of(fence: Fence) -> list[Step]:
    """The commands of a block with what they print; none if it is not a session."""
    return Block(fence.page, fence.number, fence.text).steps if fence.kind == "console" else []


def replay(pages: Sequence[Path], folder: Path) -> Iterator[tuple[Fence, list[Step]]]:
    """Write the files and run the commands of a session; each of its console blocks, with what is printed now."""
    code = 0
    background: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        for fence in (each for page in pages for each in fences(page)):
            if fence.file is not None:
                (folder / fence.file).write_text(fence.text, encoding="utf-8")
            steps = []
            for command, _ in steps_of(fence):
                output = ""
                if command.endswith("&"):
                    awaited = _AWAITED.findall(fence.page.read_text(encoding="utf-8"))[len(background)]
                    background.append(stack.enter_context(in_background(command, folder, awaited)))
                elif command == "kill -9 %1":
                    background[0].kill()
                    background[0].wait()
                elif command.startswith("duly run") and ">" not in command:
                    code, output = _on_a_terminal(command, folder)
                else:
                    code, output = run_command(command, code, folder)
                steps.append(Step(command, as_elsewhere(output, folder)))
            if steps:
                yield fence, steps


def _on_a_terminal(command: str, folder: Path) -> tuple[int, str]:
    arguments = shlex.split(command)[1:]
    with Terminal(*arguments, folder=folder, columns=200, TZ=ZONE, NO_COLOR="1") as terminal:
        if "--once" not in arguments:
            terminal.expect("  after ")  # the line of a run that has ended: `ok  backup  after 3 ms`
            if "  failed " in terminal.shown:
                terminal.expect("    raise ")  # the last line of its traceback
            terminal.press("\x03")
        code = terminal.end()
    return code, terminal.shown.replace("\r\n", "\n")


def differences(pages: Sequence[Path], folder: Path, *, everything: bool = False) -> Iterator[tuple[Fence, str]]:
    """The blocks of a session that are not what is printed now, or all of them, each with what that is."""
    for fence, steps in replay(pages, folder):
        if everything or not all(map(_shown, steps_of(fence), steps)):
            yield fence, session(steps)


def _shown(shown: Step, now: Step) -> bool:
    """Whether a page shows what is printed now; something, if anything is."""
    return matches(shown, now) and bool(shown.shown) == bool(now.shown)


def main() -> None:
    """Write what the commands print now into the pages, where that differs; a block with `…` stays as it is."""
    for pages in SESSIONS:
        folder = Path(tempfile.mkdtemp(prefix="duly-page-"))
        if needs_real_time(pages):
            wait_for_the_middle_of_a_minute()
        try:
            found = list(differences(pages, folder, everything="--all" in sys.argv))
        finally:
            shutil.rmtree(folder)
        for fence, text in found:
            if "\n…\n" not in fence.text:
                page = fence.page.read_text(encoding="utf-8")
                written = page.replace(f"```console\n{fence.text}```", f"```console\n{text}```", 1)
                fence.page.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
