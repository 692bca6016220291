"""The result of an import: registrations, and what was left out, with reasons."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duly.cli.importers.draft import Draft, Drafts, digest
from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import zone_name
from duly.errors import InvalidCronExpressionError
from duly.insight.cron_words import in_words
from duly.insight.words import listed
from duly.insight.zone_changes import ZoneChange, leaps_at, zone_changes

AHEAD: Final = timedelta(days=366)
"""How far ahead changes of the clocks are looked for, and zones are compared."""

_HOUR: Final = timedelta(hours=1)


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
    """Check the expressions, make names unique, and note what the coming changes of the clocks do to each.

    `zone` is the one that duly will run in. A schedule that is meant in another zone is left out.
    """
    names = _unique_names(found.drafts)
    differences = cache(lambda theirs: _offset_differences(theirs, zone, since))
    changes = tuple(zone_changes(zone, since, since + AHEAD))
    entries = [
        _finish(draft, name, zone, changes, differences) for draft, name in zip(found.drafts, names, strict=True)
    ]
    return Import(found.origin, found.differences, entries, found.imports, found.helpers)


def _finish(
    draft: Draft,
    name: str,
    zone: tzinfo,
    changes: Sequence[ZoneChange],
    differences: Callable[[str], set[int] | None],
) -> ImportedEntry:
    expression, obstacles, notes = None, list(draft.obstacles), list(draft.notes)
    if draft.posix is not None:
        try:
            expression = parse_cron(draft.posix)
        except InvalidCronExpressionError as fault:
            obstacles.append(f"{fault.details['field']} field {fault.details['reason']}")
    if expression is not None and draft.zone is not None:
        obstacles += _zone_obstacles(draft, expression, zone, differences(draft.zone))
    if expression is not None and not obstacles:
        notes += _clock_changes(expression, zone, changes)
    imported = expression is not None and draft.call is not None and not obstacles
    return ImportedEntry(
        source=draft.source,
        task=name,
        imported=imported,
        expression=expression if imported else None,
        words=in_words(expression) if imported and expression is not None else None,
        notes=notes,
        obstacles=obstacles,
        call=draft.call,
    )


# --- names -----------------------------------------------------------------------------------------------------------


def _unique_names(drafts: Sequence[Draft]) -> list[str]:
    """A name for each draft, whatever their order: equal names are distinguished by what is called, and when."""
    names = [draft.name or "task" for draft in drafts]
    shared = {name for name, count in Counter(names).items() if count > 1}
    names = [
        f"{name}-{digest(f'{draft.posix} {draft.call}')}" if name in shared else name
        for name, draft in zip(names, drafts, strict=True)
    ]
    taken: Counter[str] = Counter()
    for n, name in enumerate(names):
        taken[name] += 1
        if taken[name] > 1:  # the same schedule twice: whichever comes second, they are equal
            names[n] = f"{name}-{taken[name]}"
    return names


# --- zones and changes of the clocks ---------------------------------------------------------------------------------


def _offset_differences(theirs: str, zone: tzinfo, since: datetime) -> set[int] | None:
    """By how many minutes two zones differ in the coming year; None if a zone of that name is not known."""
    try:
        other: tzinfo = ZoneInfo(theirs)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return {0} if theirs == zone_name(zone) else None
    begin = since.astimezone(UTC)
    instants = (begin + hours * _HOUR for hours in range(AHEAD // _HOUR))
    return {
        int((at.astimezone(other).utcoffset() or timedelta()).total_seconds() // 60)
        - int((at.astimezone(zone).utcoffset() or timedelta()).total_seconds() // 60)
        for at in instants
    }


def _zone_obstacles(draft: Draft, expression: CronExpression, zone: tzinfo, differences: set[int] | None) -> list[str]:
    """Why an expression that is meant in another zone cannot be imported; nothing if it names the same minutes here."""
    if differences is None:
        return [f"meant in the time zone {draft.zone} ({draft.zone_origin}), which is not known here"]
    if differences == {0} or _is_due_alike(expression, differences):
        return []
    meant = f"meant in the time zone {draft.zone} ({draft.zone_origin}), and duly will run in {zone_name(zone)}"
    return [f"{meant}; if it will run in {draft.zone}, say so with --tz {draft.zone}"]


def _is_due_alike(expression: CronExpression, differences: set[int]) -> bool:
    """Whether an expression is due in every hour of every day, at minutes that no difference of the zones moves."""
    if expression.text.split()[1:] != ["*"] * 4:
        return False
    minutes = set(expression.minutes)
    return all({(each + difference) % 60 for each in minutes} == minutes for difference in differences)


def _clock_changes(expression: CronExpression, zone: tzinfo, changes: Sequence[ZoneChange]) -> list[str]:
    notes = []
    for leap in leaps_at(changes, expression):
        minutes = [f"{minute:%H:%M}" for minute in leap.minutes]
        what = listed(minutes) if len(minutes) <= 3 else f"{minutes[0]} to {minutes[-1]}"
        day = f"{leap.minutes[0]:%Y-%m-%d}"
        if leap.kind == "skipped":
            notes.append(f"on {day}, {what} does not exist in {zone_name(zone)}: duly runs nothing for it")
        else:
            notes.append(f"on {day}, {what} occurs twice in {zone_name(zone)}: duly runs it the first time only")
    return notes
