"""The client: it requests locks, and makes the calls that are about no hold."""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import math
import os
import select
import socket as sockets
import sys
import time
from typing import Any, Callable, Dict, List, Literal, NamedTuple, Optional, Tuple, Union
from urllib.parse import quote_plus

from ._arguments import check_name, check_permits, check_process, lock_request, milliseconds
from ._callbacks import Request
from ._errors import Error, InvalidError, TimeoutError, UnavailableError, UnreachableError, doing, malformed
from ._hold import FIRST_PAUSE, LAST_PAUSE, Hold
from ._wire import ANSWER_TIMEOUT, CONNECT_TIMEOUT, HINT_DOWN, HINT_SILENT, Event, Link, Socket, boottime, error_in

DEFAULT_SOCKET = "/run/bakery/bakeryd.sock"
MAX_BODY = 64 << 20  # of an answer; the list of 65,536 locks with the longest names is smaller
CALL_TIMEOUT = 40.0  # longer than the 30 s after which bakeryd itself gives up and says why
MIN_LEASE = 1.0

Mode = Literal["exclusive", "shared"]


class LockInfo(NamedTuple):
    """A lock of the lockspace."""

    name: str
    number: int  # its place on the disk
    permits: int  # greatest number of exclusive holders
    creation: int  # changes if the lock is removed and created again


class Value(NamedTuple):
    """The value of a lock, which its holders set for others to read."""

    value: Optional[bytes]  # None if there is none
    token: int  # of the hold that set or cleared it; 0 if no hold did
    host: int  # of that hold; 0 if none
    host_name: str


class Client:
    """Takes locks from the bakeryd at one socket. All methods may be called from any thread."""

    def __init__(self, socket: Union[str, "os.PathLike[str]"] = DEFAULT_SOCKET) -> None:
        if not sys.platform.startswith("linux"):
            raise UnavailableError(f"bakeryd runs on Linux only, not on {sys.platform}")
        self.socket = os.fspath(socket)
        if not 0 < len(os.fsencode(self.socket)) <= 107:
            raise InvalidError(f'socket "{self.socket}": a path of a socket has 1 to 107 bytes', "name the socket of bakeryd")

    def lock(
        self,
        name: str,
        *,
        mode: Mode = "exclusive",
        timeout: Optional[float] = None,
        permits: int = 0,
        command: Optional[str] = None,
        linger: bool = True,
        on_waiting: Optional[Callable[[int, int], None]] = None,
        on_warning: Optional[Callable[[str], None]] = None,
        on_lost: Optional[Callable[[Hold], None]] = None,
        on_request: Optional[Callable[[Hold, Request], None]] = None,
    ) -> Hold:
        """Wait until the lock is granted; use the result in a with statement.

        Raise TimeoutError if it is not granted within timeout seconds, up to 10 s later if bakeryd
        does not answer; None waits without limit. An exception, such as KeyboardInterrupt, gives
        the place in the queue up. If bakeryd cannot be reached at the first attempt,
        UnreachableError is raised immediately. If it goes away during the wait, the client tries to
        reach it for one lease, in which bakeryd keeps the place. LostError is raised if this
        process stood still until the lock was granted and lost, and in the child of a fork during
        the wait.

        permits refuses a lock with another number of permits. command is shown in listings, the
        name of the program if None. linger=False releases the lock for other hosts as soon as
        unlock returns. on_waiting gets two numbers: ahead is that of the hosts before this one and
        of the clients of this host before this client, holders included; queued is that of the
        clients of this host that wait. on_warning gets a message if an ancestor of this process
        holds the lock. Both are called by lock. on_lost and on_request are called in threads of
        their own: on_lost once, when the holder must stop, and on_request when another client asks
        for the lock.
        """
        request = lock_request(name, mode, permits, command, linger, on_request is not None)
        request["timeout_ms"] = milliseconds(timeout)
        return self._lock(_Waiter(self.socket, request, on_waiting, on_warning), on_lost, on_request)

    def try_lock(
        self,
        name: str,
        *,
        mode: Mode = "exclusive",
        permits: int = 0,
        command: Optional[str] = None,
        linger: bool = True,
        on_lost: Optional[Callable[[Hold], None]] = None,
        on_request: Optional[Callable[[Hold, Request], None]] = None,
    ) -> Hold:
        """Do what lock does, but raise BusyError instead of waiting.

        If bakeryd does not answer within 10 s, UnreachableError is raised.
        """
        request = lock_request(name, mode, permits, command, linger, on_request is not None)
        request["nonblock"] = True
        return self._lock(_Waiter(self.socket, request), on_lost, on_request)

    def _lock(
        self,
        waiter: _Waiter,
        on_lost: Optional[Callable[[Hold], None]],
        on_request: Optional[Callable[[Hold, Request], None]],
    ) -> Hold:
        try:
            link, granted = waiter.grant()
        except Error as e:
            e.prefix(f'lock "{waiter.request["name"]}"')
            raise
        hold = None
        try:  # until the end: a KeyboardInterrupt at any moment must not leave a hold behind
            hold = Hold(self, waiter.request, link, granted, on_lost, on_request)
            hold._start()
            if boottime() >= hold.deadline - hold.grace:  # this process was paused since the grant
                hold.check()
            return hold
        except BaseException:
            if hold is None:
                link.close()  # releases the lock
            else:
                hold._abandon()
            raise

    def value(self, name: str) -> Value:
        """Return the value that was set under the highest token, even if its writer is dead."""
        check_name(name)
        with doing(f'value of "{name}"'):
            answer = Event(self.call("GET", f"/v1/value?name={quote_plus(name)}"))
            value = None
            if answer.members.get("value") is not None:
                try:
                    value = base64.b64decode(answer.text("value"), validate=True)
                except binascii.Error as e:
                    raise malformed(f'value {answer.text("value")!r}, want base64') from e
            return Value(value, answer.token(), answer.number("host"), answer.text("host_name"))

    def request(self, name: str, message: str = "") -> None:
        """Ask the holders of a lock to release it. The code is "free" if it has none."""
        check_name(name)
        with doing(f'request "{name}"'):
            self.call("POST", "/v1/request", {"name": name, "message": message})

    def locks(self) -> List[LockInfo]:
        """Return the locks by name. The code is "device" if a part of the directory cannot be read."""
        with doing("list the locks"):
            answer = Event(self.call("GET", "/v1/locks"))
            if answer.text("damaged"):
                hint = "bakeryctl check names the damaged record and what to do about it"
                raise Error(answer.text("damaged"), hint, "device")
            listed = answer.members.get("locks")
            return [_info(Event(each)) for each in (listed if isinstance(listed, list) else [])]

    def create(self, name: str, permits: int = 1, *, timeout: Optional[float] = None) -> Tuple[LockInfo, bool]:
        """Create a lock. Return it, and whether it did not exist before.

        The code is "permits" if it exists with another number of permits, "full" if the directory
        is full. If bakeryd does not answer within timeout seconds, UnreachableError is raised, and
        the lock may exist or not.
        """
        check_name(name)
        check_permits(permits, 1)
        limit_ms = milliseconds(timeout)
        with doing(f'create lock "{name}"'):
            body = {"name": name, "permits": permits}
            answer = Event(self.call("POST", "/v1/create", body, limit_ms / 1000 if limit_ms else None))
            return _info(answer), answer.members.get("created") is True

    def remove(
        self, name: str, *, timeout: Optional[float] = None, nonblock: bool = False, if_no_value: bool = False
    ) -> None:
        """Wait until the lock is free and remove it.

        Raise TimeoutError if it was not free within timeout seconds, BusyError with nonblock if it
        is not free, and NoLockError if it does not exist. With if_no_value a lock that has a value
        stays; the code is "value" then.
        """
        check_name(name)
        limit_ms = milliseconds(timeout)
        body: Dict[str, Any] = {"name": name, "timeout_ms": limit_ms, "nonblock": nonblock}
        if if_no_value:
            body["if_no_value"] = True
        with doing(f'remove lock "{name}"'):
            self.call("POST", "/v1/remove", body, limit_ms / 1000 + CALL_TIMEOUT if limit_ms else None)

    def status(self) -> Dict[str, Any]:
        """Return what bakeryctl status --json prints."""
        return Event(self.call("GET", "/v1/status")).members

    def call(self, method: str, path: str, body: object = None, timeout: Optional[float] = CALL_TIMEOUT) -> Any:
        """Make a call of the API whose answer is not a stream, and return the answer.

        Raise UnreachableError if bakeryd does not answer within timeout seconds; None waits without
        limit.
        """
        what = f"{method} {path}"
        with contextlib.closing(Socket(self.socket, CONNECT_TIMEOUT)) as connection:
            connection.socket.settimeout(timeout)
            exchange = http.client.HTTPConnection("bakeryd")
            exchange.sock = connection.socket
            try:
                headers = {"Content-Type": "application/json", "Connection": "close"}
                exchange.request(method, path, None if body is None else json.dumps(body), headers)
                answer = exchange.getresponse()
                text = answer.read(MAX_BODY)
            except sockets.timeout as e:
                raise UnreachableError(f"{what}: no answer within {timeout} s", HINT_SILENT) from e
            except (OSError, http.client.IncompleteRead) as e:
                raise UnreachableError(f"{what}: the connection to bakeryd broke: {e}", HINT_DOWN) from e
            except http.client.HTTPException as e:
                raise malformed(f"{what}: {e!r}") from e
        if answer.status != 200:
            raise error_in(str(answer.status), text)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as e:
            raise malformed(f"{what}: {text[:100]!r}") from e


class _Waiter:
    """A place in the wait queue. bakeryd, or the next process of it, keeps it for a lease without a connection."""

    def __init__(
        self,
        socket: str,
        request: Dict[str, Any],
        on_waiting: Optional[Callable[[int, int], None]] = None,
        on_warning: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.request = request
        self._socket, self._on_waiting, self._on_warning = socket, on_waiting, on_warning
        self._timeout: float = request["timeout_ms"] / 1000  # 0: none
        self._begun = time.monotonic()
        self._lease = MIN_LEASE  # of the lockspace, once bakeryd has sent it
        self._reached = False  # there was a connection
        self._broken: Optional[float] = None  # when the connection broke, on CLOCK_BOOTTIME

    def grant(self) -> Tuple[Link, Event]:
        """Wait until the lock is granted."""
        pause = FIRST_PAUSE
        while True:
            try:
                return self._attempt()
            except UnavailableError as e:
                if not self._reached or self._broken is None and not isinstance(e, UnreachableError):
                    raise  # a refusal on an unbroken connection is final
                if self._broken is None:
                    self._broken = boottime()
                left = self._left()
                if left <= 0 and self._timeout and self._waited() >= self._timeout:
                    raise TimeoutError(f"not granted within {self._timeout:g} s") from e
                if left <= 0:
                    raise
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, LAST_PAUSE)

    def _waited(self) -> float:
        return time.monotonic() - self._begun

    def _left(self) -> float:
        """Return for how long another attempt makes sense."""
        now = boottime()
        left = self._lease - (now - self._broken if self._broken is not None else 0)
        return min(left, self._timeout - self._waited()) if self._timeout else left

    def _unanswered(self) -> Error:
        """Return the error of a request that bakeryd has not answered in time."""
        silent = f"no answer of bakeryd within {self._timeout + ANSWER_TIMEOUT:g} s"
        if self.request.get("nonblock"):
            return UnreachableError(silent, HINT_SILENT)
        return TimeoutError(f"not granted within {self._timeout:g} s: {silent}", HINT_SILENT)

    def _attempt(self) -> Tuple[Link, Event]:
        """Request the lock once."""
        check_process(self.request)
        link = Link(self._socket, CONNECT_TIMEOUT)
        try:
            self._reached = True
            if self._broken is not None and self._timeout:
                self.request["timeout_ms"] = max(math.ceil((self._timeout - self._waited()) * 1000), 1)
            link.request(self.request)
            return link, self._await(link)
        except BaseException:
            link.close()  # which leaves the queue, and releases what was granted meanwhile
            raise

    def _await(self, link: Link) -> Event:
        """Wait for the grant. After a broken connection, wait for the first event only while the place is kept."""
        poll = select.poll()
        poll.register(link, select.POLLIN)
        limited = self._timeout or self.request.get("nonblock")
        silent = self._broken is not None
        while True:
            seconds = self._timeout + ANSWER_TIMEOUT - self._waited() if limited else math.inf
            if seconds <= 0:
                raise self._unanswered()
            if silent:
                seconds = min(seconds, max(self._left(), 0))
            arrived = poll.poll(min(seconds, 3600) * 1000)
            if silent and not arrived and self._left() <= 0:
                raise UnreachableError(f"no answer of bakeryd within {self._lease:g} s", HINT_SILENT)
            events = link.read()
            for at, event in enumerate(events):
                silent = False
                if event.kind == "granted":
                    link.early = events[at + 1 :]
                    return self._checked(event)
                self._handle(event)

    def _handle(self, event: Event) -> None:
        if event.kind == "refused":
            raise event.refusal()
        if event.kind in ("waiting", "warning") and event.number("lease_ms") > 0:
            # The place is kept for a lease.
            self._broken, self._lease = None, event.seconds("lease_ms")
        if event.kind == "waiting" and self._on_waiting is not None:
            self._on_waiting(max(event.number("ahead"), 0), max(event.number("queued"), 0))
        if event.kind == "warning" and self._on_warning is not None:
            self._on_warning(event.text("message"))

    def _checked(self, granted: Event) -> Event:
        """Return a grant that answers the request."""
        got, want = [(each.get("name"), each.get("mode")) for each in (granted.members, self.request)]
        if granted.token() == 0 or got != want:
            raise malformed(f"granted {got} with token {granted.token()}, asked for {want}")
        return granted


def _info(answer: Event) -> LockInfo:
    creation = answer.text("creation")
    if not creation.isascii() or not creation.isdigit():
        raise malformed(f"creation {creation!r}, want a number")
    return LockInfo(answer.text("name"), answer.number("number"), answer.number("permits"), int(creation))
