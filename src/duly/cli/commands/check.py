"""duly check: whether texts are POSIX cron, what they say, and what to write instead."""

import re
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.cells import cell_len
from rich.text import Text

from duly.cli.output import Exit, fail, json_option, print_json, say
from duly.core.cron import CronExpression, parse_cron
from duly.core.dialects import Remark, Translation, translate
from duly.core.fields import FIELDS
from duly.errors import InvalidCronExpressionError
from duly.insight.cron_words import in_words
from duly.text import plain

_SHOWN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to say about one text."""

    text: str
    expression: CronExpression | None
    error: Remark | None
    hint: str | None
    translation: Translation | None

    @property
    def valid(self) -> bool:
        """Whether duly takes it as it is."""
        return self.expression is not None

    @property
    def warnings(self) -> list[str]:
        """What is valid, and easily misread."""
        return surprises(self.expression) if self.expression is not None else []

    @property
    def advice(self) -> str | None:
        """What to do about an invalid one, in a line: the whole text to write instead, or why there is none."""
        if self.translation is not None:
            if self.translation.posix is not None:
                return f"write '{self.translation.posix}'"
            if self.translation.obstacles:
                return self.translation.obstacles[0].text
        return self.hint


def examine(text: str) -> Verdict:
    """Read a text, and where that fails find the place, the reason, and the POSIX text that means the same."""
    try:
        return Verdict(text, parse_cron(text), None, None, None)
    except InvalidCronExpressionError as error:
        field, reason, hint = error.details["field"], error.details["reason"], error.details.get("hint")
        begin, end = offending(text, field)
        return Verdict(text, None, Remark(field, begin, end, reason), hint, translate(text))


def offending(text: str, field: str) -> tuple[int, int]:
    """The place that an error about a field is about: the first element of it that cannot be read."""
    spans = [(each.start(), each.end()) for each in re.finditer(r"[^ \t]+", text[: 20 * _SHOWN_MAX])]
    if field == "expression" or len(spans) < 5:
        if not spans:
            return 0, 1
        if text[spans[0][0]] == "@":
            return spans[0][0], spans[-1][1]
        # Too many fields: those that are too many; too few: where the next one would stand.
        return (spans[5][0], spans[-1][1]) if len(spans) > 5 else (spans[-1][1] + 1, spans[-1][1] + 2)
    place = list(FIELDS).index(field)
    begin, end = spans[place]
    for element in text[begin : min(end, begin + 10 * _SHOWN_MAX)].split(","):
        if not _readable(place, element):
            for part in re.finditer(r"[0-9]+", element) if re.fullmatch(r"[0-9]+-[0-9]+", element) else ():
                if not _readable(place, part.group()):
                    return begin + part.start(), begin + part.end()
            # Where there is nothing between two commas, the first of them is one too many.
            first = begin == spans[place][0]
            return (begin, begin + max(1, len(element))) if element or first else (begin - 1, begin)
        begin += len(element) + 1
    return spans[place]  # each element alone is fine, and the whole is not: it never matches


def _readable(place: int, element: str) -> bool:
    fields = ["*"] * 5
    fields[place] = element
    try:
        parse_cron(" ".join(fields))
    except InvalidCronExpressionError:
        return False
    return element != "*"


def surprises(expression: CronExpression) -> list[str]:
    """What a valid expression does that many would not expect."""
    _, _, day, _, weekday = expression.text.split()
    if day == "*" or weekday == "*":
        return []
    if len(expression.days) == 31 or len(expression.weekdays) == 7:
        return ["both day fields are restricted, so either is enough, and one of them is every day"]
    return ["both day fields are restricted, so either is enough: day of the month or weekday"]


# --- the command -----------------------------------------------------------------------------------------------------


@click.command(epilog="Exit code 0 if all are valid, 1 if any is not.")
@click.argument("expressions", metavar="EXPR...", nargs=-1, required=True)
@json_option
def check(expressions: tuple[str, ...], as_json: bool) -> int:
    """Check cron expressions, and say what each one means.

    An expression is one argument: quote it. For texts in other dialects of cron (steps, names, macros, Quartz), the
    POSIX equivalent is shown, or why there is none.

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
    verdicts = [examine(each) for each in expressions]
    valid = all(verdict.valid for verdict in verdicts)
    if as_json:
        print_json("check", {"valid": valid, "expressions": [_document(verdict) for verdict in verdicts]})
    else:
        for verdict in verdicts:
            _show(verdict)
    return Exit.OK if valid else Exit.NO


def pointed_at(text: str, error: Remark, indent: str = "") -> list[str]:
    """A text, and a caret under the place that an error is about."""
    begin = max(0, min(error.begin - _SHOWN_MAX // 2, len(text) - _SHOWN_MAX))
    shown = text[begin : begin + _SHOWN_MAX]
    head = "…" if begin else ""
    tail = "…" if begin + _SHOWN_MAX < len(text) else ""
    line = head + "".join(map(_letter, shown)) + tail
    before = cell_len(head + "".join(map(_letter, shown[: error.begin - begin])))
    before += max(0, error.begin - len(text))  # the place of a field that is missing
    width = max(1, cell_len("".join(map(_letter, shown[error.begin - begin : error.end - begin]))))
    return [indent + line, indent + " " * before + "^" + "~" * (min(width, _SHOWN_MAX) - 1)]


def _letter(letter: str) -> str:
    return " " if letter == "\t" else plain(letter)


def _show(verdict: Verdict) -> None:
    if verdict.expression is not None:
        say(Text.assemble(("✓ ", "green"), (plain(verdict.text), "bold")))
        say(f"  {in_words(verdict.expression)}")
        for warning in verdict.warnings:
            say(Text.assemble(("  note: ", "yellow"), warning))
        return
    assert verdict.error is not None
    line, caret = pointed_at(verdict.text, verdict.error)
    say(Text.assemble(("✗ ", "red"), (line, "bold")))
    say(Text.assemble("  ", (caret, "red")))
    about = "expression" if verdict.error.field == "expression" else f"{verdict.error.field} field"
    say(f"  {about} {verdict.error.text}")
    translation = verdict.translation
    if translation is None:
        if verdict.hint:
            say(Text.assemble(("  hint: ", "cyan"), plain(verdict.hint)))
        return
    for remark in translation.obstacles:
        say(Text.assemble(("  no equivalent: ", "yellow"), plain(remark.text)))
    if translation.posix is not None:
        say(Text.assemble(("  write: ", "cyan"), (translation.posix, "bold")))
        say(f"         {in_words(parse_cron(translation.posix))}")
        for remark in translation.rewritten:
            say(f"         {plain(verdict.text[remark.begin : remark.end])}: {plain(remark.text)}", style="dim")


def _document(verdict: Verdict) -> dict[str, Any]:
    translation, error = verdict.translation, verdict.error
    posix = translation.posix if translation is not None else None
    return {
        "expression": verdict.text,
        "valid": verdict.valid,
        "words": in_words(verdict.expression) if verdict.expression is not None else None,
        "warnings": verdict.warnings,
        "error": None if error is None else {
            "field": error.field, "reason": error.text, "hint": verdict.hint, "begin": error.begin, "end": error.end,
        },
        "posix": posix,
        "posixWords": in_words(parse_cron(posix)) if posix is not None else None,
        "rewritten": [_remark(each) for each in translation.rewritten] if translation is not None else [],
        "obstacles": [_remark(each) for each in translation.obstacles] if translation is not None else [],
    }  # fmt: skip


def _remark(remark: Remark) -> dict[str, Any]:
    return {"field": remark.field, "begin": remark.begin, "end": remark.end, "text": remark.text}
