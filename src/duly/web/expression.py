"""The page about an expression: in words, its next starts, and what is wrong with a text that is not one."""

from typing import Final

from duly.core.moments import Instant, as_datetime, instant_of, zone_name
from duly.insight.coming import Calendar, Coming
from duly.insight.cron_check import CronCheck, examine
from duly.insight.zone_changes import leap_in_words
from duly.web.forms import Form
from duly.web.frame import Frame
from duly.web.task import ComingLine

_STARTS: Final = 12


def page(frame: Frame, form: Form) -> str:
    """Show what was asked about; needs no store."""
    clock = frame.source.clock
    zone = form.zone("tz", clock.zone())
    at = Instant(clock.now())
    since = form.moment("from", zone, at)
    text = form.text("cron").strip()
    display = frame.display(zone, at)
    check: CronCheck | None = examine(text) if text else None
    coming: Coming | None = None
    lines: list[ComingLine] = []
    if check is not None and check.parsed is not None:
        coming = Calendar(as_datetime(at if since is None else since, zone), _STARTS).coming(None, check.parsed)
        lines = [ComingLine(instant_of(start), None) for start in coming.starts]
        lines += [ComingLine(instant_of(leap.at), leap_in_words(leap)) for leap in coming.leaps]
        lines.sort(key=lambda line: line.at)
    return frame.rendered(
        "expression.html",
        display,
        "Next",
        "Next",
        cron=text,
        tz=form.text("tz"),
        since=form.text("from"),
        zone=zone_name(zone),
        check=check,
        coming=coming,
        lines=lines,
    )
