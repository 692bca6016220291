"""The zone that a store is used in."""

from datetime import tzinfo

from duly.core.moments import zone_name
from duly.core.zones import zone_of_name


def zone_in_use(name: str | None, host_zone: tzinfo) -> tzinfo:
    """The zone in which a scheduler last used a store; the host's zone if that name means nothing here.

    Parameters:
        name: the name that the store has: `Snapshot.zone`.
        host_zone: the zone of this host.
    """
    if name is None or name == zone_name(host_zone):
        return host_zone
    return zone_of_name(name) or host_zone
