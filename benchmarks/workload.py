"""The tasks that are measured: registrations, and the sets of expressions that they take in turn.

Sets of expressions: `together` (all tasks have one daily expression), `distinct` (1,440 expressions that all name the
same minute: the hard case), `spread` (one for each minute of the day), `dormant` (none of which comes soon).
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice, product

from benchmarks.clocks import LeapingClock

EXPRESSIONS = 1_440
RETRY_DELAY = timedelta(minutes=5)

Callback = Callable[[], object] | Callable[[], Awaitable[object]]
Registration = tuple[str, str, Callback, timedelta]


def together(due: datetime) -> list[str]:
    """One daily expression."""
    return [f"{due.minute} {due.hour} * * *"]


def distinct(due: datetime) -> list[str]:
    """1,440 expressions that all name the same minute; none names those round it.

    They are declared in those before it, and a tick of very many may reach into those after it.
    """
    reach = LeapingClock.minutes_ahead
    near = {(due.minute + away) % 60 for away in range(-reach, reach + 1)}
    minutes = [f"{due.minute},{other}" for other in range(60) if other not in near]
    hours = [f"{due.hour},{other}" for other in range(24) if other != due.hour]
    days = ["*", f"1-{due.day}" if due.day > 1 else "1,2"]
    return [f"{m} {h} {d} * *" for d, m, h in islice(product(days, minutes, hours), EXPRESSIONS)]


def spread(due: datetime) -> list[str]:
    """One expression for each minute of the day."""
    return [f"{minute} {hour} * * *" for hour in range(24) for minute in range(60)]


def dormant(due: datetime) -> list[str]:
    """1,440 expressions of which none comes within the next weeks."""
    far = due + timedelta(days=100)
    return [f"{minute} {hour} {min(far.day, 28)} {far.month} *" for hour in range(24) for minute in range(60)]


SETS = {"together": together, "distinct": distinct}


def room_seconds(number: int) -> float:
    """How long declaring `number` tasks may take, generously."""
    return min(58.0, 5 + number / 20_000)


def tasks(number: int, expressions: Sequence[str], callback: Callback) -> list[Registration]:
    """`number` registrations, their expressions in turn."""
    kinds = len(expressions)
    return [(f"task-{index}", expressions[index % kinds], callback, RETRY_DELAY) for index in range(number)]
