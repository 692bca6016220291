"""Pings to a dead man's switch, such as Healthchecks: a service that alarms you when they do not come.

A ping is sent by a daemon thread and never by the event loop. A service that is slow, down or hostile costs nothing but
pings: each try has a time limit as a whole, a bounded number of pings waits, and the oldest are dropped and counted.
"""

import atexit
import http.client
import logging
import os
import socket
import threading
import time
import urllib.error
import urllib.request
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit, urlunsplit

from duly.events import Event, PollCompleted, TaskRunCompleted, TaskRunFailed, TaskRunStarted

__all__ = ["Pings"]

WAITING_MAX: Final = 1_000
"""Pings that may wait; when there are more, the oldest is dropped."""

TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0
"""Between two tries; it doubles."""

_BODY_BYTES_MAX: Final = 10_000
_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})
"""Answers of the 4xx kind that may be others later; the rest, such as 404, are final."""

_logger: Final = logging.getLogger(__name__)


class Pings:
    """Pings for single tasks and for the scheduler itself: give it to `Scheduler` as `on_event`.

    Parameters:
        checks: the URL for each task that is watched. `URL/start` is pinged when a run starts, `URL` when it has
            succeeded, `URL/fail` with the error when it has failed, each with a `rid`, which is the same for one run.
        alive: a URL that is pinged once a minute as long as the scheduler polls.
        time_limit: how long a try may take as a whole.

    Raises:
        TypeError: `checks` is not a mapping, a URL is not text, or `time_limit` is not a `timedelta`.
        ValueError: a URL is not one of http or https, or `time_limit` is not positive.
    """

    def __init__(
        self,
        checks: Mapping[str, str] | None = None,
        *,
        alive: str | None = None,
        time_limit: timedelta = timedelta(seconds=5),
    ) -> None:
        if checks is not None and not isinstance(checks, Mapping):
            raise TypeError(f"checks must be a mapping from task names to URLs, got {type(checks).__name__}")
        if not isinstance(time_limit, timedelta):
            raise TypeError(f"time_limit must be a timedelta, got {type(time_limit).__name__}")
        if time_limit <= timedelta(0):
            raise ValueError(f"time_limit must be positive, got {time_limit}")
        self._checks = {name: _url(url, f"the URL of {name!r}") for name, url in (checks or {}).items()}
        self._alive = None if alive is None else _url(alive, "the URL for alive")
        self._alive_minute: datetime | None = None
        self._runs = uuid.uuid4()
        """Numbers of runs begin again in another store: together with this, they name one run in the world."""
        self._sender = _Sender(time_limit.total_seconds())

    @property
    def dropped(self) -> int:
        """How many pings were dropped, because too many waited or no try succeeded."""
        return self._sender.dropped

    def __call__(self, event: Event) -> None:
        """Ping for an event, if it is one that a check is about."""
        if isinstance(event, PollCompleted):
            self._say_alive(event.poll_time)
        elif isinstance(event, TaskRunStarted | TaskRunCompleted | TaskRunFailed):
            if (url := self._checks.get(event.task_name)) is None:
                return
            about, run = f"task {event.task_name!r}", str(uuid.uuid5(self._runs, str(event.run_id)))
            match event:
                case TaskRunStarted():
                    self._sender.add(_Ping(about, _with(url, "/start", run), b""))
                case TaskRunCompleted():
                    self._sender.add(_Ping(about, _with(url, "", run), b""))
                case TaskRunFailed():
                    body = event.error.encode("utf-8", "replace")[:_BODY_BYTES_MAX]
                    self._sender.add(_Ping(about, _with(url, "/fail", run), body))

    def _say_alive(self, poll_time: datetime) -> None:
        minute = poll_time.replace(second=0, microsecond=0)
        if self._alive is not None and minute != self._alive_minute:
            self._alive_minute = minute
            self._sender.add(_Ping("alive", urlunsplit(self._alive), b""))

    def flush(self, timeout: timedelta = timedelta(seconds=5)) -> bool:
        """Wait until no ping waits and none is being sent.

        At the exit of the interpreter this is done for up to five seconds, so that the last success is not lost.

        Parameters:
            timeout: how long to wait at most.

        Returns:
            False if it took longer than that.
        """
        return self._sender.flush(timeout.total_seconds())


# --- addresses -------------------------------------------------------------------------------------------------------


def _url(text: object, what: str) -> SplitResult:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text, got {type(text).__name__}")
    url = urlsplit(text)
    if url.scheme not in {"http", "https"} or not url.hostname or not text.isascii() or not text.isprintable():
        raise ValueError(f"{what} must be an address that begins with http:// or https://, got {text!r}")
    return url


def _with(url: SplitResult, suffix: str, run: str) -> str:
    query = "&".join(filter(None, [url.query, urlencode({"rid": run})]))
    return urlunsplit(url._replace(path=url.path.rstrip("/") + suffix, query=query, fragment=""))


# --- sending ---------------------------------------------------------------------------------------------------------


class _Ping(NamedTuple):
    """A ping and its address; `about` is for people, because the address is a secret."""

    about: str
    url: str
    body: bytes


class _Sender:
    """The pings that wait, and the thread that sends them one after the other."""

    def __init__(self, time_limit: float) -> None:
        self._time_limit = time_limit
        self._waiting: deque[_Ping] = deque()
        self._changed = threading.Condition()
        self._sending = False
        self._thread: threading.Thread | None = None
        self._failing: set[str] = set()
        self.dropped = 0
        _flush_at_exit(self)

    def add(self, ping: _Ping) -> None:
        """Put a ping behind the others; returns at once."""
        with self._changed:
            if len(self._waiting) >= WAITING_MAX:
                self._waiting.popleft()
                self._drop("too many pings wait", "all")
            self._waiting.append(ping)
            # In a forked process the thread is gone, and is_alive() knows that.
            if self._thread is None or not self._thread.is_alive():
                self._sending = False
                self._thread = threading.Thread(target=self._send_all, name="duly-pings", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._sending, seconds)

    def _send_all(self) -> None:
        watchdog = _Watchdog()
        while True:
            with self._changed:
                self._sending = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting))
                ping = self._waiting.popleft()
                self._sending = True
            try:
                self._send(ping, watchdog)
            except Exception as error:  # whatever a server makes of the protocol, the thread goes on
                with self._changed:
                    self._drop(type(error).__name__, ping.about)

    def _send(self, ping: _Ping, watchdog: "_Watchdog") -> None:
        pause, reason = _PAUSE_SECONDS, ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(pause)
                pause *= 2
            try:
                _request(ping, self._time_limit, watchdog)
            except urllib.error.HTTPError as answer:
                answer.close()
                reason = f"the answer was {answer.code}"
                if answer.code < 500 and answer.code not in _WORTH_ANOTHER_TRY:
                    break
            except (OSError, http.client.HTTPException) as error:
                reason = f"{type(error).__name__}: {error}"
            else:
                self._failing.discard(ping.about)
                return
        with self._changed:
            self._drop(reason, ping.about)

    def _drop(self, reason: str, about: str) -> None:
        """Count a ping that will not be sent; the first in a row is logged."""
        self.dropped += 1
        if about not in self._failing:
            self._failing.add(about)
            _logger.warning("pings (%s) are dropped: %s", about, reason)


def _flush_at_exit(sender: _Sender) -> None:
    """Let the last pings go out; the interpreter ends daemon threads after this."""
    reference = weakref.ref(sender)

    def flush() -> None:
        if (still_there := reference()) is not None:
            still_there.flush(5.0)

    atexit.register(flush)
    weakref.finalize(sender, atexit.unregister, flush).atexit = False


# --- one request -----------------------------------------------------------------------------------------------------


class _Watchdog:
    """Cuts the connections of a request when its time is over.

    A time limit of a socket is for each single read: a server that sends a byte now and then would keep it for ever.
    One thread, started beside the sender: at the exit of the interpreter no thread can be started any more.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._connections: list[socket.socket] = []
        self._until: float | None = None
        """When the time of the present request is over, on the steady clock."""
        self._over = False
        threading.Thread(target=self._watch, name="duly-pings-limit", daemon=True).start()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Let the time of one request run inside a block; a TimeoutError if it is over."""
        with self._changed:
            self._until, self._over = time.monotonic() + seconds, False
            self._changed.notify()
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            if self._over:
                raise TimeoutError(f"no answer within {seconds:g} s") from error
            raise
        finally:
            with self._changed:
                self._until = None
                for connection in self._connections:
                    connection.close()
                self._connections.clear()
        if self._over:  # headers that were cut look complete
            raise TimeoutError(f"no answer within {seconds:g} s")

    def add(self, connection: socket.socket) -> None:
        """Cut this connection when the time is over, or at once if it is."""
        with self._changed:
            # A copy of the descriptor: TLS takes the original away from its object.
            self._connections.append(socket.socket(fileno=os.dup(connection.fileno())))
            if self._over:
                self._cut()

    def _watch(self) -> None:
        with self._changed:
            while True:
                left = None if self._until is None else self._until - time.monotonic()
                if left is not None and left <= 0:
                    self._until, self._over = None, True
                    self._cut()
                else:
                    self._changed.wait(left)

    def _cut(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: nobody but you says where pings go."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _request(ping: _Ping, time_limit: float, watchdog: _Watchdog) -> None:
    """One try. Raises unless the answer has a status of the 2xx kind; its body is not read."""

    class Watched(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            watchdog.add(self.sock)

    class WatchedTls(http.client.HTTPSConnection, Watched):
        """Its connect() calls that of `Watched` before the handshake."""

    class Http(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Watched, request)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(WatchedTls, request)

    opener = urllib.request.build_opener(Http, Https, _NoRedirects)
    request = urllib.request.Request(ping.url, ping.body or None, {"User-Agent": "duly"})
    if ping.body:
        request.add_header("Content-Type", "text/plain; charset=utf-8")
    with watchdog.limit(time_limit), opener.open(request, timeout=time_limit):
        pass
