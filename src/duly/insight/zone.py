"""The zone that a store is used in."""

from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duly.core.moments import zone_name


def zone_in_use(name: str | None, host_zone: tzinfo) -> tzinfo:
    """The zone in which a scheduler last used a store; the host's zone if that name means nothing here."""
    if name is None or name == zone_name(host_zone):
        return host_zone
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return host_zone
