"""The adapter's side of the protocol: requests in, answers out, whatever the library behind it does."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import version
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

from conformance import tz_database
from conformance.calendar import instant_of
from conformance.protocol import VERSION, Answer, Hello
from conformance.vector_files import Group

CRON_GROUPS: Final = (Group.CRON_PARSE, Group.CALENDAR, Group.TRANSITIONS)


class NotApplicableError(Exception):
    """A question does not concern the implementation; the text says why."""


class Adapter:
    """An implementation that can be asked, in this process; subclasses answer what their library can answer."""

    name: str
    groups: tuple[Group, ...] = CRON_GROUPS

    @property
    def version(self) -> str:
        """The version of the library."""
        return version(self.name)

    def parse(self, expression: str) -> Answer:
        """Whether a text is an expression."""
        raise NotApplicableError("it reads no cron text")

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """The occurrences after a moment, which is aware and in the zone; aware datetimes as the library gives them."""
        raise NotApplicableError("it computes no occurrences")

    def scenario(self, scenario: dict[str, Any]) -> Answer:
        """The starts in a scheduler's life."""
        raise NotApplicableError("it is not a scheduler")

    def verdict(self, lines: list[str]) -> Answer:
        """The verdict on a trace."""
        raise NotApplicableError("it judges no traces")

    def register(self, registrations: object) -> Answer:
        """The error of wrong registrations."""
        raise NotApplicableError("it takes no registrations")

    # --- the protocol ------------------------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """Introduce the library."""
        return Hello(self.name, self.version, tuple(group.value for group in self.groups), tz_database.version())

    def ask(self, request: dict[str, Any]) -> Answer:
        """Answer a question; an exception of the library is an answer, too."""
        try:
            return self._answer(request)
        except NotApplicableError as reason:
            return {"notApplicable": str(reason)}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}

    def _answer(self, request: dict[str, Any]) -> Answer:
        match request["ask"]:
            case "hello":
                hello = self.hello()
                head = {"protocol": VERSION, "name": hello.name, "version": hello.version}
                return {**head, "groups": list(hello.groups), "tzDatabase": hello.tz_database}
            case "parse":
                return self.parse(request["expression"])
            case "next":
                zone = ZoneInfo(request["zone"])
                after = instant_of(request["from"]).astimezone(zone)
                found = islice(self.occurrences(request["expression"], zone, after), request["count"])
                return {"next": [moment.isoformat() for moment in found]}
            case "scenario":
                return self.scenario(request)
            case "verdict":
                return self.verdict(request["lines"])
            case "register":
                return self.register(request["registrations"])
            case unknown:
                raise NotApplicableError(f"it does not know the question {unknown!r}")


def accepts(read: Callable[[], object]) -> Answer:
    """The answer of a library that raises when it refuses a text."""
    try:
        read()
    except Exception as error:
        return {"valid": False, "says": f"{type(error).__name__}: {error}"[:200]}
    return {"valid": True}


def serve(adapter: Adapter) -> None:
    """Answer requests from stdin until it ends; what a library prints goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps({"id": request["id"], **adapter.ask(request)}) + "\n")
        answers.flush()
