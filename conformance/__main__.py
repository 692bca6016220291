"""The command line of the kit: `python -m conformance --help`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import adapters, results, table, tz_database
from conformance.adapters.service import serve
from conformance.deviations import KINDS, class_of
from conformance.protocol import Program, ProtocolError
from conformance.runner import Report, hold
from conformance.vector_files import FOLDER, Group, VectorFileError, load, path_of

PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"
EXAMPLES_MAX = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 1 if an implementation deviates, 2 if it cannot be asked."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        return int(given.command(given))
    except (ProtocolError, VectorFileError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance", description="Vectors for cron and schedulers.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    names = [group.value for group in Group]

    run = commands.add_parser("run", help="hold a program against the vectors", description=_RUN)
    run.add_argument("--group", action="append", choices=names, help="only this group; may be repeated")
    run.add_argument("--vectors", type=Path, default=FOLDER, help="a folder with other vector files")
    run.add_argument("program", nargs="+", help="the adapter's command line, after --")
    run.set_defaults(command=_run)

    served = commands.add_parser("serve", help="be the adapter of a library that this kit knows")
    served.add_argument("name", choices=adapters.NAMES)
    served.set_defaults(command=_serve)

    made = commands.add_parser("generate", help="write the vector files")
    made.add_argument("--group", action="append", choices=names, help="only this group; may be repeated")
    made.add_argument("--to", type=Path, metavar="FOLDER", default=FOLDER, help="write them there")
    made.add_argument("--full", action="store_true", help="with every clock change since 1970; needs --to")
    made.set_defaults(command=_generate)

    tabled = commands.add_parser(
        "table", help="hold all known libraries against the vectors; write docs/conformance.md"
    )
    tabled.set_defaults(command=_table)
    return parser


_RUN = """Start a program that speaks the line protocol, ask it about every vector, and report where it deviates.
Exit code 0: it agrees with all vectors that concern it; 1: it deviates; 2: it cannot be asked."""


def _groups(given: argparse.Namespace) -> list[Group]:
    return [Group(name) for name in given.group] if given.group else list(Group)


def _run(given: argparse.Namespace) -> int:
    with Program(given.program) as program:
        report = hold(program, _groups(given), folder=given.vectors)
    _show(report)
    return 1 if report.deviations else 0


def _show(report: Report) -> None:
    name = report.hello.name
    print(f"{name} {report.hello.version}")
    if report.tz_remark is not None:
        print(report.tz_remark)
    for group, result in report.results.items():
        agreeing = result.count(name, None)
        print(f"{group.value}: {agreeing} of {len(result.vectors)} agree, {result.not_applicable} do not apply")
        for kind, times in result.kinds.most_common():
            print(f"  {times} × {class_of(name, kind).value}: {KINDS[kind].does}")
            shown = [pair for pair in zip(result.vectors, result.outcomes, strict=True) if pair[1].kind == kind]
            for vector, outcome in shown[:EXAMPLES_MAX]:
                print(f"      {vector['id']}: {outcome.answered[:200]!r}")


def _serve(given: argparse.Namespace) -> int:
    try:
        adapter = adapters.adapter(given.name)
    except ImportError as missing:
        print(f"conformance: {given.name} cannot be asked: {missing}; install it first", file=sys.stderr)
        return 2
    serve(adapter)
    return 0


def _generate(given: argparse.Namespace) -> int:
    try:
        from conformance import generator  # needs the tests of this repository; nothing else here does
    except ImportError as missing:
        print(f"conformance: vectors are generated in a checkout of duly alone: {missing}", file=sys.stderr)
        return 2

    folder: Path = given.to
    if given.full and folder == FOLDER:
        print("conformance: --full writes some 20 MB: name a folder with --to", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for group in _groups(given):
        made = generator.full(group) if given.full else generator.committed(group)
        path_of(group, folder).write_text(made.text(), encoding="utf-8")
        print(f"{group.value}: {len(made.vectors)} vectors")
    return 0


def _table(given: argparse.Namespace) -> int:
    tz_database.use_package()
    made = []
    for name in adapters.NAMES:
        with Program([sys.executable, "-m", "conformance", "serve", name]) as program:
            report = hold(program)
        if report.tz_remark is not None:
            print(report.tz_remark, file=sys.stderr)
        made.append(results.result_of(report))
        print(f"{name}: {report.deviations} deviations, {report.defects} of them defects")
    tz_version = load(Group.TRANSITIONS).tz_database or "unknown"
    results.FILE.write_text(results.text_of(made, tz_version), encoding="utf-8")
    PAGE.write_text(table.page(made, tz_version), encoding="utf-8")
    print("wrote docs/conformance.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
