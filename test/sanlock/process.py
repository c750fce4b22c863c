"""Processes that are clients of one of two daemons, and the lines that a run prints."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import time
from typing import Any, Callable, Dict, List, Optional

import libsanlock
import sanlock

PATIENCE = 120.0  # seconds within which a condition must come true

_directory = ""
_pids: List[int] = []  # of all clients, in the order of their start
_seen: Dict[str, int] = {}  # the last version of each resource, and the last generation of each host
_context = multiprocessing.get_context("fork")
_hosts: Dict[int, str] = {}


def use(hosts: Dict[int, str], directory_of_run: str) -> None:
    """Set the directory of each host's sanlock.sock, and that of the files of the run."""
    global _directory
    _hosts.update(hosts)
    _directory = directory_of_run


def directory(host: int) -> str:
    """Return the directory of a host's sanlock.sock."""
    return _hosts[host]


def attempt(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the name of its error."""
    try:
        return call()
    except sanlock.SanlockException as e:
        # python3-sanlock makes an errno positive and leaves a SANLK code negative.
        return libsanlock.name_of(-abs(e.args[0]))
    except (ValueError, TypeError) as e:
        return f"{type(e).__name__}: {e}"


class Client:
    """A process that calls python3-sanlock and libsanlock, and is registered by default."""

    def __init__(self, host: int, registered: bool = True) -> None:
        self._pipe, other = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(other, _hosts[host], registered), daemon=True)
        self._process.start()
        other.close()
        self.pid = self._process.pid or 0
        _pids.append(self.pid)
        self.finish()

    def start(self, call: Callable[..., Any], *args: Any, **keywords: Any) -> None:
        """Begin a call. Arguments that are FD become the registered socket."""
        self._pipe.send((call, args, keywords))

    def finish(self) -> Any:
        """Wait for the result of the call that was begun."""
        if not self._pipe.poll(PATIENCE):
            return f"no answer within {PATIENCE} s"
        return self._pipe.recv()

    def finished(self) -> bool:
        """Report whether the result is there, or the process is gone."""
        return self._pipe.poll(0)

    def __call__(self, call: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        self.start(call, *args, **keywords)
        return self.finish()

    def kill(self) -> None:
        """End the process with SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.join()

    def ended(self) -> Optional[str]:
        """Return the signal that ended the process, or None while it runs."""
        self._process.join(0)
        code = self._process.exitcode
        return None if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"


class FD:
    """Stands for the registered socket in arguments of a call."""


def _serve(pipe: multiprocessing.connection.Connection, run_dir: str, registered: bool) -> None:
    os.environ["SANLOCK_RUN_DIR"] = run_dir
    fd: Any = attempt(sanlock.register) if registered else -1
    pipe.send(None)
    while True:
        try:
            call, args, keywords = pipe.recv()
        except EOFError:
            return
        args = [fd if a is FD else a for a in args]
        keywords = {k: fd if v is FD else v for k, v in keywords.items()}
        pipe.send(attempt(lambda: call(*args, **keywords)))


def step(name: str, result: Any) -> None:
    """Print the line of a step."""
    if result is None:
        result = "OK"
    elif isinstance(result, int) and not isinstance(result, bool):
        result = libsanlock.name_of(result)
    print(f"{name}: {_masked(str(result))}", flush=True)


def _masked(text: str) -> str:
    """Return text without what differs between runs: directory, process ids, sizes of versions."""
    text = text.replace(_directory, "DIR")
    for number, pid in reversed(list(enumerate(_pids, start=1))):
        text = re.sub(rf"\b{pid}\b", f"PID{number}", text)
    text = re.sub(r"('resource': b'(\w+)'.*?'version': )(\d+)", _relative, text)
    text = re.sub(r"(ls\d:((?:(?! / | ls\d:)[^'])*?):DIR/[^'/]*?:\d+:)(\d+)(?![\d:])", _relative, text)
    return re.sub(r"((\d+) generation )(\d+)", _relative, text)


def _relative(found: re.Match[str]) -> str:
    """Return a version or generation as compared with the last one of its resource or host."""
    before, of, number = found[1], found[2], int(found[3])
    last, _seen[of] = _seen.get(of, 0), number
    if number == 0:
        return before + "0"
    return before + ("NEW" if number > last else "SAME" if number == last else "OLDER")


def until(call: Callable[[], Any], wanted: Callable[[Any], Any]) -> Any:
    """Call until the result is wanted, and return it; the last result if that takes too long."""
    end = time.monotonic() + PATIENCE
    while True:
        result = call()
        if wanted(result) or time.monotonic() > end:
            return result
        time.sleep(0.05)


def hosts(result: Any) -> Any:
    """Return what is the same in each run of a list of hosts."""
    flags = {1: "unknown", 2: "free", 3: "live", 4: "fail", 5: "dead", 0: "none"}
    if not isinstance(result, list):
        return result
    return [f"{h['host_id']} generation {h['generation']} timestamp {'set' if h['timestamp'] else 0} "
            f"io_timeout {h['io_timeout']} {flags.get(h['flags'], h['flags'])}" for h in result]
