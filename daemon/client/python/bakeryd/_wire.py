"""Connections to bakeryd, the events on them, and an alarm that counts suspended time."""

from __future__ import annotations

import contextlib
import ctypes
import grp
import json
import os
import socket
import threading
import time
import weakref
from typing import Any, Dict, List, Protocol

from ._errors import Error, ProtocolError, UnreachableError, malformed, refusal

MAX_LINE = 64 << 10  # of a line from bakeryd, in bytes
MAX_ANSWER = 256 << 10  # of an answer before the lines
MAX_LEASE = 3600.0  # seconds
ANSWER_TIMEOUT = 10.0  # how much longer than the requested wait bakeryd may take to answer
CONNECT_TIMEOUT = 5.0  # how long a connection is tried again while bakeryd's backlog is full

_OPEN_LINK = b"GET /v1/link HTTP/1.1\r\nHost: bakeryd\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"
HINT_DOWN = "is bakeryd running? See systemctl status bakeryd; Client(socket=...) names another socket"
HINT_SILENT = "bakeryd is stopped or hangs: see systemctl status bakeryd and journalctl -u bakeryd"


def boottime() -> float:
    """Return the time on CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _hint_closed(path: str) -> str:
    """Return how a user gets access to the socket. The default group stands for one that cannot be read."""
    group = "bakery"
    with contextlib.suppress(OSError):
        gid = os.stat(path).st_gid
        if gid == 0:
            return "run it as root"
        try:
            group = grp.getgrgid(gid).gr_name
        except KeyError:
            group = str(gid)
    return f"run it as root, or add the user to the group {group}: usermod -aG {group} USER, then log in again"


class Forkable(Protocol):
    """An object that must not work in the child of a fork."""

    def forked(self) -> None:
        """Give up, in the child."""


# Guards live, and keeps a fork from a descriptor that live does not have yet.
forking = threading.RLock()
live: weakref.WeakSet[Forkable] = weakref.WeakSet()


def _forked() -> None:
    for each in list(live):
        each.forked()
    live.clear()
    forking.release()


# A connection holds its lock as long as any process has it open.
os.register_at_fork(before=forking.acquire, after_in_parent=forking.release, after_in_child=_forked)


class Socket:
    """A non-blocking connection to bakeryd, which ends in the child of a fork."""

    def __init__(self, path: str, patience: float) -> None:
        with forking:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            live.add(self)
        self.socket.setblocking(False)
        end = time.monotonic() + patience
        try:
            while True:
                try:
                    self.socket.connect(path)
                    return
                except BlockingIOError:  # the backlog is full
                    if time.monotonic() >= end:
                        raise
                    time.sleep(0.005)
        except OSError as e:
            self.close()
            hint = _hint_closed(path) if isinstance(e, PermissionError) else HINT_DOWN
            raise UnreachableError(f"connect to bakeryd at {path}: {e.strerror or e}", hint) from e
        except BaseException:
            self.close()
            raise

    def forked(self) -> None:
        """Close the descriptor of the child."""
        self.socket.close()

    def close(self) -> None:
        """Close the connection. A fork in between would keep the descriptor."""
        with forking:
            live.discard(self)
            self.socket.close()


class Event:
    """An object from bakeryd. Members that the client does not know are ignored."""

    def __init__(self, members: Any) -> None:
        if not isinstance(members, dict):
            raise malformed(f"{str(members)[:100]!r}, want an object")
        self.members: Dict[str, Any] = members

    @classmethod
    def parse(cls, line: bytes) -> Event:
        """Return the event in a line."""
        try:
            return cls(json.loads(line))
        except (ValueError, RecursionError) as e:
            raise malformed(f"{line[:100]!r}: {e}") from e

    @property
    def kind(self) -> str:
        """The kind of the event. A newer bakeryd may send kinds that the client does not know."""
        return self.text("event")

    def text(self, name: str) -> str:
        """Return a text, empty if it is missing."""
        return str(self._member(name, str, ""))

    def number(self, name: str) -> int:
        """Return a number, 0 if it is missing."""
        return int(self._member(name, int, 0))

    def _member(self, name: str, kind: type, default: object) -> Any:
        value = self.members.get(name, default)
        if not isinstance(value, kind):
            raise malformed(f'"{name}" is {value!r}, want {kind.__name__}')
        return value

    def token(self) -> int:
        """Return the token, 0 if it is missing. In JSON it is a text: many readers keep 53 bits of a number."""
        text = self.text("token") or "0"
        if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) >= 1 << 64:
            raise malformed(f"token {text!r}, want a decimal number of 64 bits")
        return int(text)

    def seconds(self, name: str) -> float:
        """Return a time, at most the longest lease."""
        return min(max(self.number(name), 0) / 1000, MAX_LEASE)

    def refusal(self) -> Error:
        """Return the error of a refusal."""
        if not self.text("code"):
            raise malformed("refused without a code")
        return refusal(self.text("code"), self.text("message"), self.text("hint"))


class Link(Socket):
    """A connection by which a lock is requested, held and released, in lines of JSON."""

    def __init__(self, path: str, patience: float = 0) -> None:
        self.asked = 0.0  # when the lock was requested, on CLOCK_BOOTTIME
        self.early: List[Event] = []  # were read, and are to be read again
        self._buffer = bytearray()
        self._upgraded = False
        super().__init__(path, patience)

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self.socket.fileno()

    def request(self, body: Dict[str, Any]) -> None:
        """Request a lock, the first line of the link."""
        self.asked = boottime()
        self._send(_OPEN_LINK + json.dumps({"lock": body}).encode() + b"\n")

    def unlock(self, token: int) -> None:
        """Ask bakeryd to release the lock."""
        self._send(b'{"unlock":"%d"}\n' % token)

    def _send(self, data: bytes) -> None:
        try:
            sent = self.socket.send(data, socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            return  # reading returns why bakeryd has closed the connection
        except OSError as e:
            raise UnreachableError(f"write to bakeryd: {e.strerror}", HINT_DOWN) from e
        if sent < len(data):
            raise UnreachableError("write to bakeryd: it does not read", HINT_DOWN)

    def read(self) -> List[Event]:
        """Return the events that have arrived."""
        if self.early:
            early, self.early = self.early, []
            return early
        try:
            data = self.socket.recv(MAX_LINE)
        except BlockingIOError:
            return []
        except OSError as e:
            raise UnreachableError(f"the connection to bakeryd broke: {e.strerror}", HINT_DOWN) from e
        if not data:
            raise UnreachableError("bakeryd has closed the connection", HINT_DOWN)
        self._buffer += data
        if not self._upgraded and not self._accept():
            return []
        *lines, rest = self._buffer.split(b"\n")
        if len(rest) > MAX_LINE:
            raise malformed(f"a line of more than {MAX_LINE} bytes")
        self._buffer = rest
        return [Event.parse(line) for line in lines if line.strip()]

    def _accept(self) -> bool:
        """Read the HTTP answer before the lines. Return False if a part is missing."""
        head, end, body = bytes(self._buffer).partition(b"\r\n\r\n")
        if len(self._buffer) > MAX_ANSWER:
            raise malformed(f"more than {MAX_ANSWER} bytes before the first line")
        if not end:
            return False
        status, *headers = head.decode("latin-1").split("\r\n")
        if status.startswith("HTTP/1.1 101 "):
            self._upgraded, self._buffer = True, bytearray(body)
            return True
        length = next((h[15:].strip() for h in headers if h.lower().startswith("content-length:")), "0")
        if length.isdigit() and len(body) < int(length):
            return False
        raise error_in(status, body)

    def until(self, event: Event) -> float:
        """Return the deadline in an event.

        If this process was paused, bakeryd sent the event long ago. at_ms then corrects the
        deadline, if it is plausible: a bakeryd in another time namespace has another clock.
        """
        now, at = boottime(), event.number("at_ms") / 1000
        return (at if self.asked - 0.001 < at < now else now) + event.seconds("lease_ms")


def error_in(status: str, body: bytes) -> Error:
    """Return the error in an answer."""
    try:
        return Event(Event.parse(body).members.get("error")).refusal()
    except ProtocolError as e:
        return ProtocolError(f"{e.message}, with the status {status[:100]}")


class _TimerSpec(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = [(name, ctypes.c_long) for name in ("again_s", "again_ns", "s", "ns")]


class Alarm:
    """A timer on CLOCK_BOOTTIME: its descriptor is readable from a time on, also after a suspend."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_CLOEXEC | os.O_NONBLOCK  # TFD_CLOEXEC and TFD_NONBLOCK
        with forking:
            self._fd = int(self._libc.timerfd_create(int(time.CLOCK_BOOTTIME), flags))
            live.add(self)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), f"create a timer: {os.strerror(ctypes.get_errno())}")

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self._fd

    def set(self, at: float) -> None:
        """Ring at that time on CLOCK_BOOTTIME; immediately if it has passed."""
        at = max(at, 1e-6)  # 0 disarms
        spec = _TimerSpec(0, 0, int(at), int(at % 1 * 1e9))
        absolute = 1  # TFD_TIMER_ABSTIME
        if self._libc.timerfd_settime(self._fd, absolute, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), f"set a timer: {os.strerror(ctypes.get_errno())}")

    def forked(self) -> None:
        """Close the descriptor of the child."""
        self.close()

    def close(self) -> None:
        """Close the timer."""
        live.discard(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
