"""Calls of functions of the user, in threads of their own: they may take long."""

from __future__ import annotations

import collections
import threading
from typing import Callable, Deque, NamedTuple

MAX_UNREAD = 16  # how many requests are kept


class Request(NamedTuple):
    """A request of another client for the lock, as bakeryctl request makes it."""

    host: int
    host_name: str  # empty if unknown
    message: str  # without control characters; may be empty


def call_apart(callback: Callable[[], None]) -> None:
    """Call in another thread."""
    try:
        threading.Thread(target=callback, name="bakeryd callback", daemon=True).start()
    except RuntimeError:  # there can be no more threads
        callback()


class Requests:
    """Passes requests on, one after the other. It keeps the latest ones if the callback is slow."""

    def __init__(self, callback: Callable[[Request], None]) -> None:
        self._callback = callback
        self._lock = threading.Lock()  # guards the fields below
        self._unread: Deque[Request] = collections.deque(maxlen=MAX_UNREAD)
        self._running = False  # a thread reads them

    def add(self, request: Request) -> None:
        """Pass a request on."""
        with self._lock:
            self._unread.append(request)
            if self._running:
                return
            self._running = True
        call_apart(self._run)

    def _run(self) -> None:
        try:
            while True:
                with self._lock:
                    if not self._unread:
                        self._running = False
                        return
                    request = self._unread.popleft()
                self._callback(request)
        except BaseException:  # of the callback: Python prints it, and the next request is passed on
            with self._lock:
                self._running = False
            raise
