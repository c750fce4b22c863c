"""A lock that bakeryd granted, and the thread that keeps it or notices its loss."""

from __future__ import annotations

import select
import threading
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Type

from ._arguments import check_mode, check_process, encode_value
from ._callbacks import Request, Requests, call_apart
from ._errors import Error, LostError, UnavailableError, UnreachableError, doing, malformed
from ._wire import ANSWER_TIMEOUT, Alarm, Event, Link, boottime, forking, live

if TYPE_CHECKING:
    from ._client import Client, Mode

CATCH_UP = 0.5  # how long a query of the current deadline may take, in seconds
RELEASE_TIMEOUT = 2.0  # how long a release may take
LATE = 0.1  # a later alarm means that this process was paused, and that events may be unread
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.25  # bounds of the pause between two attempts to reach bakeryd

_HINT_STOP = "stop what needs the lock, and take it again"


class Hold:
    """A lock that is held until unlock, or until the end of its with block.

    It outlives its connection: if that breaks, a thread asks bakeryd, or the next process of it,
    for the hold again until the deadline. All methods may be called from any thread.
    """

    name: str
    token: int  # each exclusive hold has a greater one than all earlier holds of the lock
    host: int  # id of this host in the lockspace
    warned: threading.Event  # is set when the holder must stop; a late renewal does not clear it
    lost: threading.Event  # is set when the hold is lost: at the deadline, or as bakeryd reports

    def __init__(
        self,
        client: Client,
        request: Dict[str, Any],
        link: Link,
        granted: Event,
        on_lost: Optional[Callable[[Hold], None]],
        on_request: Optional[Callable[[Hold, Request], None]],
    ) -> None:
        self.name, self.token, self.host = request["name"], granted.token(), granted.number("host")
        self._client, self._link, self._alarm = client, link, Alarm()
        self._request = {**request, "token": str(self.token), "timeout_ms": 0}  # resumes the hold
        self._requests = None if on_request is None else Requests(partial(on_request, self))
        self._on_lost: Optional[Callable[[Hold], None]] = on_lost  # None after the call
        self._release_error: Optional[Error] = None
        self._away = False  # the connection broke, and no new one exists
        self._mode, self._change = granted.text("mode"), granted.number("change")
        self._until, self._grace = link.until(granted), granted.seconds("grace_ms")
        self._judge_at: Optional[float] = None  # when a late alarm takes effect without an answer
        self._error: Optional[LostError] = None  # why it is lost
        self._closed_at: Optional[float] = None  # when unlock was called
        self._primitives()
        self._thread = threading.Thread(target=self._run, name=f"bakeryd hold {self.name}", daemon=True)
        with forking:
            live.add(self)
        with doing(f'lock "{self.name}"'):
            check_process(request)  # a fork before that did not know this hold

    def _primitives(self) -> None:
        # Guards what both the thread and callers change: from _mode to _closed_at. It is no Condition:
        # an interrupt may leave that locked.
        self._mutex = threading.RLock()
        self.warned, self.lost = threading.Event(), threading.Event()
        self._over = threading.Event()  # lost or unlocked
        self._finished = threading.Event()  # the thread has ended

    def forked(self) -> None:
        """Lose the hold in the child of a fork: the parent keeps it."""
        self._primitives()
        why = f"process {self._request['pid']} holds it, and this one is a fork of that"
        self._error = LostError(f'lock "{self.name}": {why}', "take the lock in this process")
        self._closed_at = boottime()
        for event in (self.warned, self.lost, self._over, self._finished):
            event.set()

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Unlock. Raise LostError if the lock was lost, unless the block has raised an exception."""
        lost: Optional[LostError] = None
        try:
            if self._error is not None or self._closed_at is None:
                lost = self._loss()
        finally:
            try:
                self.unlock()
            except Error:
                if kind is None and lost is None:
                    raise
        if kind is None and lost is not None:
            raise lost

    @property
    def mode(self) -> str:
        """The mode that bakeryd last reported: "exclusive" or "shared"."""
        return self._mode

    @property
    def deadline(self) -> float:
        """When the lease ends, in seconds on time.CLOCK_BOOTTIME. It moves with every renewal."""
        return self._until

    @property
    def grace(self) -> float:
        """How many seconds before the deadline the holder must begin to stop."""
        return self._grace

    def remaining(self) -> float:
        """Return the seconds until the deadline, 0 if it has passed."""
        return max(self._until - boottime(), 0.0)

    def check(self) -> None:
        """Raise LostError if the hold is over or the holder must stop."""
        if self.warned.is_set() and not self._error:
            raise self._lost_by("the lease is about to end without a renewal")
        lost = self._loss()
        if lost is not None:
            raise lost

    def _loss(self) -> Optional[LostError]:
        """Return why the hold is over, None if it is not."""
        end = boottime() + 2 * CATCH_UP
        while not self._over.is_set() and self._until <= boottime() < end:
            time.sleep(FIRST_PAUSE)  # this process was paused beyond the deadline: the thread asks bakeryd now
        with self._mutex:
            if self._error is not None:
                return LostError(self._error.message, self._error.hint)
            if self._closed_at is not None:
                return LostError(f'lock "{self.name}": it was unlocked', "take the lock again")
            if self._until <= boottime():
                return self._lost_by("the lease ended without a renewal")
            return None

    def _lost_by(self, why: str) -> LostError:
        return LostError(f'lock "{self.name}" lost: {why}', _HINT_STOP)

    def unlock(self) -> None:
        """Release the lock. A lost hold must be unlocked, too. Further calls have no effect.

        It returns when the release is on the disk, or the next client of this host has the lock. It
        raises UnreachableError if bakeryd has not released the lock within two seconds, for example
        because the device hangs; the hold is over then, too. If bakeryd is gone, the next bakeryd
        releases the lock, at the deadline that it knows.
        """
        with self._mutex:
            if self._closed_at is None:
                self._closed_at = boottime()
                self._over.set()
                if not self._finished.is_set():
                    self._alarm.set(0)
        self._finished.wait()
        if self._release_error is not None:
            raise self._release_error

    def set_mode(self, mode: Mode) -> None:
        """Change how the lock is held. Raise UpgradeError if others hold or wait for it."""
        check_mode(mode)
        with doing(f'hold "{self.name}" {mode}'):
            answer = Event(self._change_by("/v1/mode", {"mode": mode}))
            if answer.text("mode") != mode:
                raise malformed(f'mode "{answer.text("mode")}", asked for "{mode}"')
            self._apply_mode(answer)

    def set_value(self, value: bytes) -> None:
        """Set the value of the lock, which must be held exclusively; b"" clears it."""
        change = {"value": encode_value(value)}
        with doing(f'set the value of "{self.name}"'):
            self._change_by("/v1/value", change)

    def _change_by(self, path: str, change: Dict[str, Any]) -> Any:
        """Make a repeatable call until bakeryd answers, at most until the hold is over."""
        body = {"session": self._request["session"], "token": str(self.token), **change}
        while True:
            if self._over.is_set():
                raise self._loss() or self._lost_by("it is over")
            try:
                return self._client.call("POST", path, body, ANSWER_TIMEOUT)
            except UnavailableError:
                self._over.wait(LAST_PAUSE)

    def _apply_mode(self, event: Event) -> None:
        """Set the mode, unless a later change is known: answers and events arrive in any order."""
        with self._mutex:
            if event.number("change") >= self._change:
                self._mode, self._change = event.text("mode"), event.number("change")

    # The methods below are called by the thread, _start and _abandon by the caller of Client.lock.

    def _start(self) -> None:
        self._thread.start()

    def _abandon(self) -> None:
        """Give the lock up: the caller does not get the hold."""
        with self._mutex:
            self._closed_at = boottime()
            self._over.set()
            if self._thread.ident is None:  # it did not start
                self._end()
            elif not self._finished.is_set():
                self._alarm.set(0)

    def _run(self) -> None:
        try:
            while self._closed_at is None:
                if self._error is None:
                    self._follow()
                self._wait(None if self._error else self._link)
            self._release()
        except BaseException as e:  # without this thread the end of the lease would go unnoticed
            self._lose(f"its thread ended: {e!r}")
            raise
        finally:
            with self._mutex:
                self._end()

    def _end(self) -> None:
        live.discard(self)
        self._link.close()
        self._alarm.close()
        self._finished.set()

    def _due(self) -> float:
        """Return when the lease needs attention: for the warning, then for the deadline."""
        if self._judge_at is not None:
            return self._judge_at
        return self._until if self.warned.is_set() else self._until - self._grace

    def _wait(self, link: Optional[Link], seconds: float = 3600, unlocking: float = 0) -> None:
        """Wait for events, for the lease to need attention, or for that long after unlock."""
        with self._mutex:
            if self._closed_at is not None:
                self._alarm.set(self._closed_at + unlocking)
            elif self._error is None:
                self._alarm.set(self._due())
            else:
                self._alarm.set(boottime() + 3600)  # only unlock is awaited
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        if link is not None:
            poll.register(link, select.POLLIN)
        poll.poll(seconds * 1000)

    def _follow(self) -> None:
        """Handle what has arrived, and the state of the lease."""
        try:
            for event in self._link.read():
                self._handle(event)
        except UnavailableError:
            self._away = True
        except Error as e:
            self._lose(e.message)
        self._judge()
        if self._away or self._judge_at is not None:
            self._reattach()

    def _handle(self, event: Event) -> None:
        if event.kind == "renewed":
            if boottime() > self._due() + LATE:
                raise UnreachableError("this process stood still: the event may be old")
            self._renew(self._link.until(event))
        elif event.kind == "lost":
            if event.number("at_ms"):  # another host may get the lock before the lease ends
                self._until = min(self._until, self._link.until(event))
            raise LostError(event.text("message"))
        elif event.kind == "released":
            raise malformed("released without a request")
        elif event.kind == "mode":
            self._apply_mode(event)
        elif event.kind == "requested" and self._requests is not None:
            self._requests.add(Request(event.number("host"), event.text("host_name"), event.text("message")))

    def _renew(self, until: float) -> None:
        with self._mutex:
            self._until, self._judge_at = until, None

    def _judge(self) -> None:
        """Warn or lose the hold if that is due."""
        with self._mutex:
            now, due = boottime(), self._due()
            if self._error is not None or self._closed_at is not None or now < due:
                return
            if self._judge_at is None and now > due + LATE:
                # This process was paused: bakeryd may have renewed the lease. The deadline itself is
                # not delayed.
                self._judge_at = now + CATCH_UP if now >= self._until else min(now + CATCH_UP, self._until)
                return
            self._judge_at = None
            if now < self._until:
                self.warned.set()
        if now < self._until:
            self._notify_lost()
        else:
            self._lose("the lease ended without a renewal")

    def _lose(self, why: str) -> None:
        with self._mutex:
            if self._error is not None or self._closed_at is not None:
                return
            self._error = self._lost_by(why)
            for event in (self.warned, self.lost, self._over):
                event.set()
        self._notify_lost()

    def _notify_lost(self) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            call_apart(partial(on_lost, self))

    def _reattach(self) -> None:
        """Ask for the hold again until bakeryd answers.

        The old connection stays open until then: if it is not broken, closing it could release the
        lock.
        """
        pause = FIRST_PAUSE
        while self._error is None and (self._closed_at is None or boottime() < self._closed_at + CATCH_UP):
            link = None
            try:
                link = Link(self._client.socket)
                link.request({**self._request, "mode": self._mode})
                if self._resume(link):
                    return
            except UnavailableError:
                pass
            except Error as e:
                self._lose(e.message)
            finally:
                if link is not None and link is not self._link:
                    link.close()
            self._wait(None, pause, CATCH_UP)
            self._judge()
            pause = min(pause * 1.5, LAST_PAUSE)

    def _resume(self, link: Link) -> bool:
        """Wait for bakeryd to find the hold, and switch to the new connection."""
        while self._error is None and (self._closed_at is None or boottime() < self._closed_at + CATCH_UP):
            for event in link.read():
                if self._link is link:
                    self._handle(event)
                elif event.kind == "refused":
                    raise event.refusal()
                elif event.kind == "lost":
                    raise LostError(event.text("message"))
                elif event.kind == "granted":
                    self._adopt(link, event)
            if self._link is link:
                return True
            self._wait(link, unlocking=CATCH_UP)
            self._judge()
        return False

    def _adopt(self, link: Link, granted: Event) -> None:
        if granted.text("name") != self.name or granted.token() != self.token:
            raise malformed(f'granted "{granted.text("name")}" with token {granted.token()}')
        with self._mutex:
            old, self._link, self._away = self._link, link, False
            self._grace = granted.seconds("grace_ms")
            # Another bakeryd restarts the count.
            self._mode, self._change = granted.text("mode"), granted.number("change")
        old.close()
        # The lease is counted from before the request, so a slow answer can only make it shorter.
        self._renew(link.asked + granted.seconds("lease_ms"))

    def _release(self) -> None:
        """Release the lock, or only close the connection if it is lost or broken."""
        if self._error is not None or self._away or self._closed_at is None:
            return
        end = self._closed_at + RELEASE_TIMEOUT
        try:
            self._link.unlock(self.token)
            while boottime() < end:
                self._wait(self._link, unlocking=RELEASE_TIMEOUT)
                if any(e.kind in ("released", "kept", "refused", "lost") for e in self._link.read()):
                    return
        except Error:
            if boottime() < end:
                return  # the end of the connection releases the lock
        self._release_error = UnreachableError(
            f'unlock "{self.name}": the lock is not released yet, after {RELEASE_TIMEOUT:.0f} s',
            "bakeryd releases it when the device answers; dmesg shows what is wrong with that",
        )
