"""duly itself: parser, occurrences, the real scheduler on a simulated host, the checker of traces, and errors."""

import asyncio
import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import duly
from conformance.adapters.service import Adapter
from conformance.protocol import Answer
from conformance.vector_files import Group
from duly.errors import TraceError
from duly.formal import Value, check
from duly.testing import SimulatedHost

_REASONS: Final = (
    ("is empty", "empty"),
    (r"has .* fields? instead of 5", "field-count"),
    ("contains an empty element", "empty-element"),
    (r"mixes '\*'", "star-not-alone"),
    ("contains a sign '-'", "not-a-range"),
    ("which is not a range", "not-a-range"),
    ("is out of range|7 is not a weekday", "out-of-range"),
    ("runs backwards", "backwards"),
    ("never matches", "never-matches"),
)


class Duly(Adapter):
    """All groups."""

    name = "duly"
    groups = tuple(Group)

    def parse(self, expression: str) -> Answer:
        """The sets that `parse_cron` reads, or the field and the reason of its error."""
        try:
            found = duly.parse_cron(expression)
        except duly.errors.InvalidCronExpressionError as error:
            field, reason = error.details["field"], error.details["reason"]
            return {"valid": False, "field": field, "reason": _reason(field, reason), "says": str(error)[:200]}
        sets = {"minute": found.minutes, "hour": found.hours, "day": found.days, "month": found.months}
        sets["weekday"] = found.weekdays
        return {"valid": True, "sets": {field: list(values) for field, values in sets.items()}}

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """One occurrence after the other."""
        found = duly.parse_cron(expression)
        while True:
            after = found.next_after(after)
            yield after

    def scenario(self, scenario: dict[str, Any]) -> Answer:
        """The real scheduler on a simulated host."""
        with _quiet():
            return {"starts": asyncio.run(Life(scenario).live())}

    def verdict(self, lines: list[str]) -> Answer:
        """The checker's verdict, without the bounds of promptness, which are an engineering target."""
        try:
            report = check(io.BytesIO("".join(f"{line}\n" for line in lines).encode()), bounded=False)
        except TraceError as error:
            return {"broken": error.details["fault"]}
        values = {name: verdict.value for name, verdict in report.verdicts.items()}
        if report.violations:
            first = min(violation.seq for violation in report.violations)
            names = sorted({violation.property for violation in report.violations if violation.seq == first})
            return {"verdict": "violated", "seq": first, "properties": names}
        for value in (Value.VIOLATED, Value.PENDING):
            if names := sorted(name for name, found in values.items() if found is value):
                return {"verdict": value.value, "properties": names}
        return {"verdict": "satisfied" if report.ended else "holding"}

    def register(self, registrations: object) -> Answer:
        """The error that `initialize` raises, on a host of its own."""
        with _quiet():
            return asyncio.run(_registered(decoded(registrations)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: the failures of a scenario are meant to happen."""
    logger = logging.getLogger("duly")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _reason(field: str, text: str) -> str:
    for pattern, reason in _REASONS:
        if re.search(pattern, text):
            return reason
    return "macro" if field == "expression" else "foreign-character"


# --- scenarios -------------------------------------------------------------------------------------------------------


class Life:
    """One scenario: what is declared, called and suffered, and the starts that were seen."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self._scenario = scenario
        self._starts: list[dict[str, str]] = []
        self._runs: dict[str, int] = {}
        self._host = SimulatedHost(scenario["at"], scenario["zone"])
        self._scheduler: duly.Scheduler | None = None

    async def live(self) -> list[dict[str, str]]:
        """Go through all steps; returns the starts."""
        async with self._host:
            for step in self._scenario["steps"]:
                await self._take(step)
        return self._starts

    async def _take(self, step: dict[str, Any]) -> None:
        match step["do"]:
            case "initialize":
                if self._scheduler is None:
                    options = {"interrupted": self._scenario.get("interrupted", "restart")}
                    self._scheduler = self._host.scheduler(
                        max_concurrency=self._scenario.get("maxConcurrency"), **options
                    )
                await self._scheduler.initialize([self._registration(task) for task in step["tasks"]])
                await self._host.advance()
            case "stop":
                assert self._scheduler is not None
                await self._scheduler.stop()
            case "pass":
                await self._host.advance(seconds=step["seconds"])
            case "freeze":
                await self._host.jump(seconds=step["seconds"])
            case "set-clock":
                await self._host.set_clock(self._host.now.astimezone(UTC) + timedelta(seconds=step["seconds"]))
            case "crash":
                await self._host.crash()
                self._scheduler = None
            case unknown:
                raise ValueError(f"no such step: {unknown}")

    def _registration(self, task: dict[str, Any]) -> tuple[str, str, Any, timedelta]:
        async def callback() -> None:
            run = duly.current_run()
            assert run is not None
            self._starts.append({"task": run.task, "cause": run.cause, "at": run.started_at.isoformat()})
            number = self._runs.get(run.task, 0)
            self._runs[run.task] = number + 1
            doing = task["runs"][number % len(task["runs"])]
            await self._host.sleep(doing["seconds"])
            if doing["outcome"] == "failure":
                raise RuntimeError("the scenario says so")

        return task["name"], task["cron"], callback, timedelta(milliseconds=task["retryDelayMs"])


# --- registrations ---------------------------------------------------------------------------------------------------


async def _do_nothing() -> None:
    pass


def decoded(value: Any) -> Any:
    """A value of a vector: JSON, and `{"$...": ...}` for what JSON has no form for (README.md lists these)."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$duration": milliseconds}:
            return timedelta(milliseconds=milliseconds)
        case {"$callback": "function"}:
            return _do_nothing
        case {"$utf16": units}:
            return "".join(chr(int(unit, 16)) for unit in units)
        case _:
            return {name: decoded(each) for name, each in value.items()}


async def _registered(registrations: Any) -> Answer:
    async with SimulatedHost("2025-01-01T00:00", "UTC") as host:
        scheduler = host.scheduler()
        try:
            await scheduler.initialize(registrations)
        except duly.errors.DulyError as error:
            kept = {name: value for name, value in error.details.items() if isinstance(value, str | int)}
            kept = {name: value for name, value in kept.items() if not isinstance(value, str) or _is_storable(value)}
            return {"error": type(error).__name__, "message": error.message, "details": kept}
        await scheduler.stop()
        return {"accepted": True}


def _is_storable(text: str) -> bool:
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in text)


def adapter() -> Adapter:
    """The adapter of this module."""
    return Duly()
