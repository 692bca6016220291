"""The command `duly`, which says what to install where the libraries of the command line are missing."""

import sys


def main() -> None:
    """Run the command line; the entry point of the script `duly`, and of `python -m duly`."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f'error: the command line of duly needs the package {missing.name}\nhint: pip install "duly[cli]"\n'
        )
        sys.exit(2)
    from duly.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
