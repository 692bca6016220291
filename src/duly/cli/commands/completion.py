"""`duly completion`: the script by which a shell completes `duly`."""

from typing import Final

import click

from duly.cli.completion import completion_script
from duly.cli.output import Exit

SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the script that completes duly in a shell.

    It completes commands, options and their values, files, zones, and the tasks of a store.

    \b
    Example:
      eval "$(duly completion bash)"       # in ~/.bashrc; zsh alike, in ~/.zshrc
      duly completion fish > ~/.config/fish/completions/duly.fish
    """
    click.echo(completion_script(ctx.find_root().command, shell), nl=False)
    return Exit.OK
