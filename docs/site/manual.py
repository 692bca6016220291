"""Man pages, completion scripts and a page of all options, from the commands themselves: `make manual` writes them.

A wheel installs the folder `share` as it is, so `man duly-run` and completion work in an environment without further
steps; docs/reference/commands.md is a page of the site. The files carry no date, so equal sources give equal files.
"""

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from duly.cli.app import COMMANDS, duly
from duly.cli.completion import completion_script

SHARE: Final = Path(__file__).resolve().parents[2] / "share"
REFERENCE: Final = Path(__file__).resolve().parents[1] / "reference" / "commands.md"
_MAN: Final = "man/man1"
_SCRIPTS: Final = {
    "bash": "bash-completion/completions/duly",
    "zsh": "zsh/site-functions/_duly",
    "fish": "fish/vendor_completions.d/duly.fish",
}


def files() -> dict[str, str]:
    """Every file of the folder: its path in it, and its text."""
    found = {f"{_MAN}/{name.replace(' ', '-')}.1": man_page(name, command) for name, command in commands()}
    return found | {path: completion_script(duly, shell) for shell, path in _SCRIPTS.items()}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its full name, those of extras included."""
    context = click.Context(duly, info_name="duly")
    yield "duly", duly
    for name in COMMANDS:
        command = duly.get_command(context, name)
        assert command is not None
        yield f"duly {name}", command
        if isinstance(command, click.Group):
            for part, subcommand in command.commands.items():
                yield f"duly {name} {part}", subcommand


# --- the page of the site --------------------------------------------------------------------------------------------


def reference() -> str:
    """docs/reference/commands.md: what each command takes, as `--help` says it."""
    head = (
        "# Options of the commands\n\n"
        "Every command with its arguments and options, in the words of `--help`; `make manual` writes this page.\n"
        "[The command line](../commands.md) shows them at work.\n"
    )
    return "\n".join([head, *(_section(name, command) for name, command in commands())])


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## `{name}`", "", f"    {usage}", ""]
    for paragraph in _paragraphs(command):
        if paragraph.lstrip().startswith("\b"):
            lines += ["```text", inspect.cleandoc(paragraph.lstrip("\b\n")), "```", ""]
        else:
            lines += [_plain(" ".join(paragraph.split())), ""]
    if found := _records(command, context):
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(names)}` | {_plain(_cell(' '.join(text.split())))} |" for names, text in found]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text that does not end a cell of a table."""
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([*_<\[\]])", r"\\\1", text)


# --- man pages -------------------------------------------------------------------------------------------------------


def man_page(name: str, command: click.Command) -> str:
    """The man page of one command."""
    paragraphs = _paragraphs(command)
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.replace(" ", "-").upper()}" "1" "" "duly" "User Commands"',
        ".SH NAME",
        f"{_escaped(name.replace(' ', '-'))} \\- {_escaped(_first_sentence(paragraphs))}",
        ".SH SYNOPSIS",
        f".B {_escaped(name)}",
        _escaped(usage),
        ".SH DESCRIPTION",
        *_described(paragraphs),
        *_options(command, context),
        *_subcommands(name, command),
        ".SH SEE ALSO",
        _see_also(name),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(command: click.Command) -> list[str]:
    text = inspect.cleandoc((command.help or "").split("\f")[0])  # before 3.13, docstrings keep their indentation
    paragraphs = [each.strip("\n") for each in re.split(r"\n[ \t]*\n", text) if each.strip()]
    return [*paragraphs, command.epilog] if command.epilog else paragraphs


def _first_sentence(paragraphs: list[str]) -> str:
    words = " ".join(paragraphs[0].split())
    sentence = re.split(r"(?<=\.)\s", words)[0].rstrip(".")
    return sentence[0].lower() + sentence[1:]


def _described(paragraphs: list[str]) -> Iterator[str]:
    """Paragraphs as they are; one that click is not to wrap stays unfilled, too."""
    for paragraph in paragraphs:
        yield ".PP"
        if paragraph.lstrip().startswith("\b"):
            yield ".nf"
            yield from map(_escaped, paragraph.lstrip("\b\n").splitlines())
            yield ".fi"
        else:
            yield _escaped(" ".join(paragraph.split()))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    if found := _records(command, context):
        yield ".SH OPTIONS"
    for names, text in found:
        yield ".TP"
        yield f"\\fB{_escaped(names)}\\fR"
        yield _escaped(" ".join(text.split()))


def _records(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """The options of a command and their texts, as `--help` lists them."""
    records = [each.get_help_record(context) for each in command.get_params(context) if isinstance(each, click.Option)]
    return [each for each in records if each is not None]


def _subcommands(name: str, command: click.Command) -> Iterator[str]:
    """The commands of a group, with the page of each."""
    inner = [(full, each) for full, each in commands() if full.rpartition(" ")[0] == name]
    if isinstance(command, click.Group) and inner:
        yield ".SH COMMANDS"
        for full, each in inner:
            yield ".TP"
            yield f"\\fB{_escaped(full.replace(' ', '-'))}\\fR(1)"
            yield _escaped(_first_sentence(_paragraphs(each)))


def _see_also(name: str) -> str:
    if name == "duly":
        return "The documentation of duly: tutorial, guides, reference."
    parent = name.rpartition(" ")[0].replace(" ", "-")
    return f".BR {_escaped(parent)} (1)"


def _escaped(text: str) -> str:
    """Text that roff shows as it is."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def main() -> None:
    """Write the folder and the page anew."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    shutil.rmtree(SHARE, ignore_errors=True)
    for name, text in files().items():
        path = SHARE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
