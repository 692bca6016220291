"""`duly check`: whether texts are POSIX cron, what they say, and what to write instead."""

from collections.abc import Sequence
from datetime import UTC
from typing import Final

import click
from rich.text import Text

from duly.cli.caret import pointed_at
from duly.cli.completion import complete_target
from duly.cli.output import Exit, Failure, json_option, masked, print_json, say, show_failure
from duly.cli.quoting import refuse_unquoted
from duly.cli.target import TARGET_HELP, load_now, looks_like_target
from duly.insight.cron_check import CronCheck, TargetCheck, examine, examine_tasks
from duly.insight.cron_words import shortened
from duly.insight.json_form import json_form
from duly.insight.words import counted
from duly.text import plain

_EPILOG: Final = "Exit code 0 if all are valid, 1 if an expression is not, 3 if a TARGET cannot be loaded or is wrong."
_WARNINGS_MAX: Final = 20


@click.command(epilog=f"TARGET is {TARGET_HELP}. {_EPILOG}")
@click.argument("arguments", metavar="EXPR|TARGET...", nargs=-1, required=True, shell_complete=complete_target)
@json_option
def check(arguments: tuple[str, ...], as_json: bool) -> int:
    """Check cron expressions in words, or all tasks of a TARGET.

    An expression is one argument: quote it. For texts in other dialects of cron (steps, names, macros, Quartz), the
    POSIX equivalent is shown, or the reason why there is none. A TARGET is imported, and the first thing in it that a
    scheduler would refuse is reported; no store is needed. A TARGET that is refused does not keep the others from being
    checked.

    \b
    Example:
      duly check '30 2 * * 1-5' '*/15 * * * *'
      duly check tasks.py
    """
    if not all(map(looks_like_target, arguments)):
        refuse_unquoted("check", arguments)
    targets, refused = _check_targets([each for each in arguments if looks_like_target(each)])
    checks = [examine(each) for each in arguments if not looks_like_target(each)]
    valid = all(each.valid for each in checks)
    for failure in refused.values():
        show_failure(failure)
    if as_json:
        document = {
            "valid": valid and not refused,
            "expressions": [json_form(each, UTC) for each in checks],
            "targets": [json_form(each, UTC) for each in targets],
            "refused": [
                {"target": masked(target), "error": masked(failure.message), "hint": failure.hint}
                for target, failure in refused.items()
            ],
        }
        print_json("check", document)
    else:
        for target in targets:
            _show_target(target)
        for each in checks:
            _show(each)
    return Exit.TARGET if refused else Exit.OK if valid else Exit.NO


def _check_targets(texts: Sequence[str]) -> tuple[list[TargetCheck], dict[str, Failure]]:
    """Checks of all targets, and the failures of those that a scheduler would refuse."""
    targets: list[TargetCheck] = []
    refused: dict[str, Failure] = {}
    for text in texts:
        try:
            loaded = load_now(text)
        except Failure as failure:
            if failure.code is not Exit.TARGET:
                raise
            refused[text] = failure
        else:
            targets.append(examine_tasks(text, [(each.name, each.expression) for each in loaded.registrations]))
    return targets, refused


def _show_target(checked: TargetCheck) -> None:
    say(Text.assemble(("✓ ", "green"), (plain(checked.target), "bold")))
    say(f"  {counted(checked.tasks, 'task')}, {counted(checked.expressions, 'expression')}")
    for warning in checked.warnings[:_WARNINGS_MAX]:
        about = f"{plain(warning.task)}, {shortened(warning.expression)}"
        say(Text.assemble(("  note: ", "yellow"), f"{about}: {warning.text}"))
    if (more := len(checked.warnings) - _WARNINGS_MAX) > 0:
        say(f"  … and {counted(more, 'more note')} (--json has all)", style="dim")


def _show(check: CronCheck) -> None:
    if check.valid:
        say(Text.assemble(("✓ ", "green"), (plain(check.expression), "bold")))
        say(f"  {check.words}")
        for warning in check.warnings:
            say(Text.assemble(("  note: ", "yellow"), warning))
        return
    error = check.error
    assert error is not None
    line, caret = pointed_at(check.expression, error.begin, error.end)
    say(Text.assemble(("✗ ", "red"), (line, "bold")))
    say(Text.assemble("  ", (caret, "red")))
    about = "expression" if error.field == "expression" else f"{error.field} field"
    say(f"  {about} {error.reason}")
    for remark in check.obstacles:
        say(Text.assemble(("  no equivalent: ", "yellow"), plain(remark.text)))
    if check.posix is not None:
        say(Text.assemble(("  write: ", "cyan"), (check.posix, "bold")))
        say(f"         {check.posix_words}")
        for remark in check.rewritten:
            say(f"         {plain(check.expression[remark.begin : remark.end])}: {plain(remark.text)}", style="dim")
    elif error.hint and not check.obstacles:
        say(Text.assemble(("  hint: ", "cyan"), plain(error.hint)))
