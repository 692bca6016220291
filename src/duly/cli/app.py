"""The command `duly`: finds and loads commands, and turns every failure into one message and an exit code."""

import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import click

from duly.cli import streams
from duly.cli.output import Exit, Failure, failure_of, reason_of, show_failure
from duly.errors import DulyError
from duly.text import meant

COMMANDS: Final[dict[str, str]] = {
    "run": "duly.cli.commands.run:run",
    "plan": "duly.cli.commands.plan:plan",
    "status": "duly.cli.commands.status:status",
    "history": "duly.cli.commands.history:history",
    "next": "duly.cli.commands.next:next_",
    "check": "duly.cli.commands.check:check",
    "explain": "duly.cli.commands.explain:explain",
    "simulate": "duly.cli.commands.simulate:simulate",
    "trace": "duly.cli.commands.trace:trace",
    "verify": "duly.cli.commands.verify:verify",
    "import": "duly.cli.commands.import_:import_",
    "store": "duly.cli.commands.store:store",
    "copy": "duly.cli.commands.copy:copy",
    "web": "duly.cli.commands.web:web",
    "mcp": "duly.cli.commands.mcp:mcp",
    "completion": "duly.cli.commands.completion:completion",
}
"""The place of each command, in the order of the help; a module is imported when its command is used."""

_NEEDS: Final = {"web": ("starlette", "jinja2", "uvicorn"), "mcp": ("mcp",)}
"""Packages of extras without which a command is not listed; used all the same, it says what to install."""


class Commands(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names of commands that can be used here, in the order of the table."""
        return [name for name in COMMANDS if all(map(find_spec, _NEEDS.get(name, ())))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, with a suggestion for a mistyped one."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            close = meant(name, COMMANDS)
            ask = f"; did you mean {close}?" if close else f"; there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no such command: {name}{ask}", ctx)
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"duly {version('duly')} (Python {sys.version.split()[0]})")
        ctx.exit()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes, errors, events and JSON: docs/reference/",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
@click.pass_context
def duly(ctx: click.Context) -> int:
    """Run tasks on cron schedules, durably, and see what they do.

    \b
    Example:
      duly plan tasks.py --store state.db    # what would change?
      duly run tasks.py --store state.db     # start the scheduler
      duly status --store state.db           # is it healthy?
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return Exit.USAGE
    return Exit.OK


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    streams.prepare()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except streams.ReaderGoneError:
        # The reader of the output has enough, as `head` has after ten lines. What a shell reports of a program that the
        # signal SIGPIPE ends, and neither 0 nor 1: the answer may not have been reached.
        streams.discard_output()
        code = Exit.READER_GONE
    except streams.OutputError as fault:
        streams.discard_output()
        failure = Failure(f"standard output cannot be written: {reason_of(fault)}", "make room, or write elsewhere")
        show_failure(failure)
        code = Exit.OUTPUT
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        outcome: Any = duly.main(
            args=None if arguments is None else list(arguments), prog_name="duly", standalone_mode=False
        )
    except Failure as failure:
        show_failure(failure)
        return failure.code
    except DulyError as error:
        unexpected = failure_of(error)
        show_failure(unexpected)
        return unexpected.code
    except click.NoSuchOption as error:
        place = error.ctx.command_path if error.ctx is not None else "duly"
        close = meant(error.option_name, error.possibilities or ())
        ask = f"; did you mean {close}?" if close else ""
        show_failure(Failure(f"no such option: {error.option_name}{ask}", f"{place} --help"))
        return Exit.USAGE
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx is not None else "duly"
        show_failure(Failure(_on_one_line(error), f"{place} --help"))
        return Exit.USAGE
    except click.ClickException as error:
        show_failure(Failure(_on_one_line(error)))
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except streams.OutputError:
        raise
    except Exception:
        traceback.print_exc()
        show_failure(Failure("this is a defect of duly, not of what you did", "please report it, with the lines above"))
        return Exit.DEFECT
    return outcome if isinstance(outcome, int) else Exit.OK


def _on_one_line(error: click.ClickException) -> str:
    """The message of click, which puts choices on lines of their own, behind tabs."""
    return re.sub(r"\s*\n\s*", " ", error.format_message())
