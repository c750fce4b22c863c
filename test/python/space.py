"""Real bakeryds on files, and Python processes that use the client."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List

import bakeryd

PROGRAMS = pathlib.Path(os.environ["BAKERY_PROGRAMS"])
PATIENCE = 120.0  # seconds within which a condition must come true


def _longest_stall() -> float:
    """Return for how long the machine may be stopped: see test/stall."""
    text = os.environ.get("BAKERY_TEST_STALL", "0s")
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


SHORT = 3 + 2 * _longest_stall()  # a lease whose end a test waits for
ROOT = os.getuid() == 0
LONG = 30 + 2 * _longest_stall()  # a lease that outlives a test


def eventually(what: str, condition: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


class Host:
    """A bakeryd on a file."""

    def __init__(self, directory: pathlib.Path, host_id: int, flags: List[str]) -> None:
        self.device, self.directory = directory / "disk", directory / str(host_id)
        self.directory.mkdir()
        self.socket = str(self.directory / "sock")
        self.client = bakeryd.Client(self.socket)
        at = str(self.directory)
        self._argv = [str(PROGRAMS / "bakeryd"), "--device", str(self.device), "--host-id", str(host_id)]
        self._argv += ["--socket", self.socket, "--runtime-dir", at, "--state-dir", at, *flags]
        self.start()

    def start(self) -> None:
        """Start bakeryd and wait until it serves."""
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(self._argv, stderr=log)
        eventually("bakeryd serves", self.serves)

    def serves(self) -> bool:
        """Report whether bakeryd has joined and answers."""
        if self.process.poll() is not None:
            raise AssertionError((self.directory / "log").read_text()[-3000:])
        try:
            return self.client.locks() is not None
        except bakeryd.UnavailableError:
            return False

    def end(self, by: int = signal.SIGTERM) -> None:
        """End bakeryd by a signal."""
        if self.process.poll() is None:
            self.process.send_signal(by)
            self.process.send_signal(signal.SIGCONT)
        self.process.wait()

    def stop(self) -> None:
        """Stop bakeryd, as by a debugger, and wait until it stands still."""
        self.process.send_signal(signal.SIGSTOP)
        state = pathlib.Path(f"/proc/{self.process.pid}/stat")
        eventually("bakeryd stands still", lambda: state.read_text().rpartition(")")[2].split()[0] == "T")

    def clients(self, name: str) -> List[Dict[str, Any]]:
        """Return the clients of the host that hold the lock or wait for it."""
        locks = self.client.status().get("locks") or []
        return [each for lock in locks if lock["name"] == name for each in lock["holders"] + lock.get("local", [])]


class Worker:
    """A Python process. Its code has client, say to print a line, and hear to wait for tell."""

    _HEAD = """
import os, signal, sys, threading, time
import bakeryd
client = bakeryd.Client(sys.argv[1])
def say(*words): print(*words, flush=True)
def hear(): sys.stdin.readline()
"""

    def __init__(self, socket: str, code: str) -> None:
        argv = [sys.executable, "-c", self._HEAD + code, socket]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def tell(self) -> None:
        """End a hear of the process."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def said(self) -> str:
        """Return the next line of the process, empty at its end."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """Kill the process and all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class Case(unittest.TestCase):
    """A test with hosts and workers that end with it."""

    lease = LONG

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=os.environ["BAKERY_SPACES"]))
        self.addCleanup(shutil.rmtree, self.directory)
        argv = [str(PROGRAMS / "bakeryctl"), "format", str(self.directory / "disk"), "--hosts", "8", "--locks", "64"]
        subprocess.run([*argv, "--lease", f"{self.lease}s"], check=True, stdout=subprocess.DEVNULL)
        self.host = self.another_host(1)
        self.client = self.host.client

    def another_host(self, host_id: int, *flags: str) -> Host:
        """Start a host."""
        host = Host(self.directory, host_id, list(flags))
        self.addCleanup(host.end, signal.SIGKILL)
        return host

    def worker(self, code: str, socket: str = "") -> Worker:
        """Start a process."""
        worker = Worker(socket or self.host.socket, code)
        self.addCleanup(worker.end)
        return worker

    def assert_holds(self, worker: Worker) -> None:
        """Wait until a process has said its places in the queue, and that it holds."""
        said = worker.said()
        while said.startswith("ahead"):
            said = worker.said()
        self.assertEqual(said, "holds")

    def assert_said(self, worker: Worker, *lines: str) -> None:
        """Compare what a process says next."""
        self.assertEqual([worker.said() for _ in lines], list(lines))
