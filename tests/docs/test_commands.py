"""Every command that a page names exists, with its options; and every session of a page is replayed by some test."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs.site.assemble import ROOT, pages
from duly.cli.app import duly
from tests.cli.pages import PAGES as REPLAYED
from tests.docs.pages import SESSIONS, fences

_FENCE = re.compile(r"^ *```(?:console|text|)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(duly [a-z][^`<\n]*)`")
_COMMAND = re.compile(r"^ *(?:\$ )?(?:\w+=\S+ |ssh \w+ |.*\| *)?(duly [a-z].*)$")
_ENDS = ("|", "||", "&&", "&", ">", ">>", "<", ";", "2>")


def commands_of(page: Path) -> Iterator[str]:
    """The commands of a page: at the begin of a line of a block, after a pipe, and between backticks."""
    text = page.read_text(encoding="utf-8")
    for block in _FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := _COMMAND.match(line):
                yield found[1]
    yield from _INLINE.findall(text)


def words_of(command: str) -> list[str]:
    """The arguments of a command, up to where the shell takes over."""
    words = shlex.split(command, comments=True)[1:]
    end = next((position for position, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


def parse(words: list[str]) -> None:
    """Parse arguments as `duly` does, and do nothing; raises what it would say of an unknown command or option."""
    command: click.Command = duly
    context = click.Context(duly, info_name="duly")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found = words[0], command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"there is no command {name}")
        command, words = found, words[1:]
        context = click.Context(command, info_name=name, parent=context)
    try:
        command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage as missing:
        if words[-1] != missing.option_name:  # a page may name an option and leave its value out
            raise


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_commands_of_a_page_exist_with_their_options(name: str) -> None:
    """In a block or between backticks; what they print is compared where a page shows a session."""
    for command in commands_of(ROOT / name):
        try:
            parse(words_of(command))
        except click.UsageError as error:
            pytest.fail(f"{command}: {error.message}", pytrace=False)


def test_commands_that_do_not_exist_are_found() -> None:
    """The check can fail: for a command, for one of a group, and for an option."""
    for wrong in ("duly flan x", "duly store chek URL", "duly plan tasks.py --chek"):
        with pytest.raises(click.UsageError):
            parse(words_of(wrong))
    parse(words_of("duly verify state.db || mail -s 'a promise' ops"))
    assert sum(1 for name in pages() for _ in commands_of(ROOT / name)) > 300


def test_every_session_is_replayed() -> None:
    """A block marked `console` is on a page that a test goes through; a block with `$` is marked so."""
    replayed = {*REPLAYED, *(page for session in SESSIONS for page in session)}
    for name in pages():
        page = ROOT / name
        if any(each.kind == "console" for each in fences(page)):
            assert page in replayed, name
        unmarked = re.findall(r"^ *```(?!console)\w*\n(?:(?! *```).*\n)*? *\$ ", page.read_text(), re.MULTILINE)
        assert unmarked == [], name
