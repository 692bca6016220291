"""`duly check`: whether texts are POSIX cron, what they say, and what to write instead."""

from datetime import UTC

import click
from rich.text import Text

from duly.cli.caret import pointed_at
from duly.cli.output import Exit, fail, json_option, print_json, say
from duly.insight.cron_check import CronCheck, examine
from duly.insight.json_form import json_form
from duly.text import plain


@click.command(epilog="Exit code 0 if all are valid, 1 if any is not.")
@click.argument("expressions", metavar="EXPR...", nargs=-1, required=True)
@json_option
def check(expressions: tuple[str, ...], as_json: bool) -> int:
    """Check cron expressions, and show each one in words.

    An expression is one argument: quote it. For texts in other dialects of cron (steps, names, macros, Quartz), the
    POSIX equivalent is shown, or the reason why there is none.

    \b
    Example:
      duly check '30 2 * * 1-5' '*/15 * * * *'
    """
    if len(expressions) >= 5 and not any(" " in each or "\t" in each for each in expressions):
        quoted = plain(" ".join(expressions[:12]))
        if len(expressions) <= 7:
            fail(f"got {len(expressions)} arguments that each look like one field", f"quote it: duly check '{quoted}'")
        fail(
            f"got {len(expressions)} arguments, none with five fields",
            "quote each expression: the shell replaces * with the names of files",
        )
    checks = [examine(each) for each in expressions]
    valid = all(each.valid for each in checks)
    if as_json:
        print_json("check", {"valid": valid, "expressions": [json_form(each, UTC) for each in checks]})
    else:
        for each in checks:
            _show(each)
    return Exit.OK if valid else Exit.NO


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
