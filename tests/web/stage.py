"""Stores with a past: made by the real scheduler on a simulated host, for pages to show."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta, tzinfo
from pathlib import Path

from duly.core.moments import instant_of
from duly.testing import SimulatedHost

ZONE = "Europe/Berlin"

Entry = tuple[str, str, int, float, float]
"""Name, expression, minutes until a retry, seconds that a run usually takes, share of runs that fail."""

FORTY: Sequence[Entry] = (
    ("heartbeat", "* * * * *", 1, 0.2, 0.0),
    ("orders/import", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *", 1, 14, 0.01),
    ("orders/export-erp", "7,22,37,52 * * * *", 2, 38, 0.03),
    ("orders/dunning", "15 7 * * 1-5", 10, 160, 0.02),
    ("stock/sync-warehouse", "0,10,20,30,40,50 * * * *", 1, 95, 0.02),
    ("stock/forecast", "20 3 * * *", 30, 2100, 0.05),
    ("stock/low-alert", "0 8,12,16 * * *", 5, 6, 0.0),
    ("search/reindex", "30 2 * * *", 15, 5400, 0.04),
    ("search/delta", "3,13,23,33,43,53 * * * *", 1, 21, 0.005),
    ("search/synonyms", "0 4 * * 0", 60, 340, 0.0),
    ("mail/newsletter", "0 10 * * 2", 10, 3900, 0.2),
    ("mail/bounces", "12,42 * * * *", 2, 9, 0.0),
    ("mail/digest", "0 6 * * *", 5, 480, 0.03),
    ("backup/full", "0 1 * * 0", 60, 7800, 0.1),
    ("backup/incremental", "0 1 * * 1-6", 30, 840, 0.03),
    ("backup/verify", "0 5 * * *", 30, 1260, 0.0),
    ("backup/ship-offsite", "30 5 * * *", 15, 2600, 0.12),
    ("logs/rotate", "59 23 * * *", 5, 12, 0.0),
    ("logs/ship", "2,17,32,47 * * * *", 1, 18, 0.01),
    ("logs/expire", "40 4 * * *", 30, 75, 0.0),
    ("billing/invoices", "0 2 1 * *", 30, 5200, 0.0),
    ("billing/settle", "45 * * * *", 5, 66, 0.02),
    ("billing/fx-rates", "5 16 * * 1-5", 5, 4, 0.1),
    ("billing/payouts", "0 9 * * 1-5", 15, 310, 0.03),
    ("cache/warm", "1,31 * * * *", 1, 47, 0.0),
    ("cache/evict", "26 * * * *", 1, 3, 0.0),
    ("cdn/purge", "11 * * * *", 1, 5, 0.02),
    ("metrics/rollup-hour", "4 * * * *", 5, 33, 0.0),
    ("metrics/rollup-day", "10 0 * * *", 10, 540, 0.0),
    ("metrics/rollup-month", "20 0 1 * *", 60, 2900, 0.0),
    ("reports/finance", "30 6 * * 1-5", 15, 720, 0.08),
    ("reports/ops", "0 7 * * *", 15, 95, 0.0),
    ("reports/board", "0 8 1,15 * 1", 60, 1500, 0.0),
    ("users/gdpr-erase", "0 3 * * *", 60, 230, 0.0),
    ("users/sessions-expire", "8,28,48 * * * *", 1, 7, 0.0),
    ("users/sync-crm", "18 * * * *", 5, 210, 0.06),
    ("certs/renew", "33 3 * * 1", 120, 25, 0.0),
    ("dns/check", "9,24,39,54 * * * *", 1, 2, 0.01),
    ("partners/sync-acme-mirror", "16,46 * * * *", 3, 55, 0.45),
    ("db/vacuum", "30 2 * * 6", 60, 4100, 0.0),
)

_FEW = {
    "orders/export-erp", "orders/dunning", "stock/forecast", "search/reindex", "mail/bounces", "mail/newsletter",
    "backup/full", "backup/ship-offsite", "billing/settle", "metrics/rollup-month", "users/sync-crm", "certs/renew",
    "partners/sync-acme-mirror", "cache/warm",
}  # fmt: skip
FEW: Sequence[Entry] = tuple(entry for entry in FORTY if entry[0] in _FEW)
"""Fewer runs a day, for tests that only need some of everything."""

ERRORS = (
    "the mirror does not answer",
    "<script>alert(9)</script>\n\x1b[31mred \u202eevil",
    "no answer from erp.example.net after 30 s",
    "503 Service Unavailable for https://api.example.net/v2/sync",
    "deadlock detected",
)


class FixedClock:
    """A clock that stands at one moment, in one zone."""

    def __init__(self, at: int, zone: tzinfo) -> None:
        self.at = at
        self._zone = zone

    def now(self) -> int:
        return self.at

    def elapsed(self) -> float:
        return self.at / 1_000_000

    def zone(self) -> tzinfo:
        return self._zone

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        raise NotImplementedError("nothing waits on this clock")


def registrations(
    host: SimulatedHost, entries: Sequence[Entry], seed: int = 5
) -> list[tuple[str, str, Callable[[], Awaitable[None]], timedelta]]:
    """Callbacks that take their time and fail as often as their entry says."""
    chance = random.Random(seed)

    def callback(seconds: float, failing: float) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await host.sleep(seconds * chance.uniform(0.6, 1.8))
            if chance.random() < failing:
                raise ConnectionError(chance.choice(ERRORS))

        return run

    return [
        (name, cron, callback(seconds, failing), timedelta(minutes=minutes))
        for name, cron, minutes, seconds, failing in entries
    ]


async def past(
    path: Path,
    entries: Sequence[Entry] = FEW,
    *,
    days: float = 3,
    until: str = "2026-10-26T16:20:35",
    trace: bool = False,
) -> FixedClock:
    """Days of work up to a moment, from one day on with a crash and an outage of nine hours; ends with a crash."""
    async with SimulatedHost(until, ZONE, store=path) as end:
        zone = end.now.tzinfo
        assert zone is not None
        last = end.now
    begin = (last - timedelta(days=days)).replace(tzinfo=None)
    async with SimulatedHost(begin, ZONE, store=path, callbacks_only_sleep=True) as host:
        scheduler = host.scheduler(trace=trace)
        await scheduler.initialize(registrations(host, entries))
        outage = last - timedelta(days=days) * 0.4
        if days >= 1:
            await host.advance_to(outage)
            await host.crash()
            await host.advance(hours=9)
            scheduler = host.scheduler(trace=trace)
            await scheduler.initialize(registrations(host, entries))
        await host.advance_to(last)
        await host.crash()
    os.utime(f"{path}.lock", (last.timestamp() - 20, last.timestamp() - 20))  # its last poll was by the simulated clock
    return FixedClock(instant_of(last), zone)
