"""The command `duly`, which says what to install where the libraries of the command line are missing."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with the arguments of the process, or with others, and exit.

    The entry point of the script `duly`, of `python -m duly`, and of programs that have a command of their own for it.
    """
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f'error: the command line of duly needs the package {missing.name}\nhint: pip install "duly[cli]"\n'
        )
        sys.exit(2)
    from duly.cli.app import main as run

    run(arguments)


if __name__ == "__main__":
    main()
