"""What became of drafts: registrations, and what was left out, with reasons."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Final

from duly.cli.importers.draft import Draft, Drafts
from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import zone_name
from duly.errors import InvalidCronExpressionError
from duly.insight.cron_words import in_words
from duly.insight.words import listed
from duly.insight.zone_changes import leaps

AHEAD: Final = timedelta(days=366)
"""How far ahead changes of the clocks are looked for."""


@dataclass(frozen=True, slots=True)
class ImportedEntry:
    """One schedule of the other scheduler, as a registration or as one that was left out."""

    source: str
    task: str
    imported: bool
    expression: CronExpression | None
    words: str | None
    """The expression in words."""

    notes: Sequence[str]
    obstacles: Sequence[str]
    call: str | None = field(repr=False)
    """The callback as Python source."""


@dataclass(frozen=True, slots=True)
class Import:
    """All that was found, and what is different under duly for all of it."""

    origin: str
    differences: Sequence[str]
    entries: Sequence[ImportedEntry]
    imports: Sequence[str] = field(repr=False)
    helpers: str = field(repr=False)

    @property
    def imported(self) -> list[ImportedEntry]:
        """The entries that became registrations."""
        return [entry for entry in self.entries if entry.imported]

    @property
    def left_out(self) -> list[ImportedEntry]:
        """The entries that did not."""
        return [entry for entry in self.entries if not entry.imported]


def finish(found: Drafts, zone: tzinfo, since: datetime) -> Import:
    """Check the expressions, make names unique, and note what the coming changes of the clocks do to each."""
    taken: set[str] = set()
    entries = [_finish(draft, taken, zone, since) for draft in found.drafts]
    return Import(found.origin, found.differences, entries, found.imports, found.helpers)


def _finish(draft: Draft, taken: set[str], zone: tzinfo, since: datetime) -> ImportedEntry:
    expression, obstacles, notes = None, list(draft.obstacles), list(draft.notes)
    if draft.posix is not None:
        try:
            expression = parse_cron(draft.posix)
        except InvalidCronExpressionError as fault:
            obstacles.append(f"{fault.details['field']} field {fault.details['reason']}")
    if expression is not None and not obstacles:
        notes += _clock_changes(expression, zone, since)
    imported = expression is not None and draft.call is not None and not obstacles
    return ImportedEntry(
        source=draft.source,
        task=_unique(draft.name, taken),
        imported=imported,
        expression=expression if imported else None,
        words=in_words(expression) if imported and expression is not None else None,
        notes=notes,
        obstacles=obstacles,
        call=draft.call,
    )


def _unique(name: str, taken: set[str]) -> str:
    unique, number = name, 1
    while unique in taken or not unique:
        number += 1
        unique = f"{name or 'task'}-{number}"
    taken.add(unique)
    return unique


def _clock_changes(expression: CronExpression, zone: tzinfo, since: datetime) -> list[str]:
    notes = []
    for leap in leaps(expression, zone, since, since + AHEAD):
        minutes = [f"{minute:%H:%M}" for minute in leap.minutes]
        what = listed(minutes) if len(minutes) <= 3 else f"{minutes[0]} to {minutes[-1]}"
        day = f"{leap.minutes[0]:%Y-%m-%d}"
        if leap.kind == "skipped":
            notes.append(f"on {day}, {what} does not exist in {zone_name(zone)}: duly runs nothing for it")
        else:
            notes.append(f"on {day}, {what} occurs twice in {zone_name(zone)}: duly runs it the first time only")
    return notes
