"""Locks, their queue, modes and values, on a bakeryd that works."""

from __future__ import annotations

import code
import contextlib
import errno
import grp
import io
import os
import pathlib
import pickle
import re
import tempfile
import threading
import unittest
import unittest.mock
from typing import Any, Callable, List

import bakeryd
import space

GUIDE = pathlib.Path(__file__).parents[2] / "packaging" / "docs" / "api.md"


class Locks(space.Case):
    """Clients of one host."""

    def test_tokens(self) -> None:
        """Tokens are whole numbers of up to 64 bits, which grow."""
        tokens = []
        for _ in range(5):
            with self.client.lock("tokens") as hold:
                tokens.append(hold.token)
                self.assertEqual(str(hold.token), self.host.clients("tokens")[0]["token"])
                hold.check()
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertGreater(tokens[0], 1 << 53)

    def test_lease(self) -> None:
        """A hold has a deadline, which renewals move, and bakeryd sees program and process."""
        with self.client.lock("lease", command="a\ncommand") as hold:
            first = hold.deadline
            self.assertLessEqual(hold.remaining(), space.LONG)
            self.assertGreater(hold.remaining(), 0)
            self.assertGreater(hold.grace, 0)
            self.assertEqual(hold.host, 1)
            self.assertEqual(self.host.clients("lease")[0]["command"], "a?command")
            space.eventually("the lease is renewed", lambda: hold.deadline > first)
            self.assertFalse(hold.warned.is_set() or hold.lost.is_set())

    def test_busy_and_timeout(self) -> None:
        """A request that may not wait, or not longer, is refused, and leaves the queue."""
        with self.client.lock("busy"):
            with self.assertRaises(bakeryd.BusyError) as busy:
                self.client.try_lock("busy")
            self.assertEqual((busy.exception.code, busy.exception.message[:11]), ("busy", 'lock "busy"'))
            with self.assertRaises(TimeoutError) as late:  # Python's own
                self.client.lock("busy", timeout=0.1)
            self.assertIsInstance(late.exception, bakeryd.TimeoutError)
            space.eventually("no waiter is left", lambda: len(self.host.clients("busy")) == 1)
        self.client.try_lock("busy").unlock()

    def test_queue_between_processes(self) -> None:
        """Processes are served in the order of their requests."""
        code = """
with client.lock("queue", on_waiting=lambda ahead, queued: say("ahead", ahead)):
    say("holds")
    hear()
say("done")
"""
        first = self.worker(code)
        self.assert_said(first, "holds")
        second = self.worker(code)
        self.assert_said(second, "ahead 1")
        third = self.worker(code)
        self.assert_said(third, "ahead 2")
        for worker, following in ((first, second), (second, third)):
            worker.tell()
            self.assert_said(worker, "done")
            self.assert_holds(following)

    def test_modes(self) -> None:
        """Readers share a lock, and one of them becomes the writer when it is alone."""
        with self.client.lock("modes", mode="shared") as one:
            self.assertEqual(one.mode, "shared")
            with self.client.try_lock("modes", mode="shared"):
                with self.assertRaises(bakeryd.BusyError):
                    self.client.try_lock("modes")
                with self.assertRaises(bakeryd.UpgradeError):
                    one.set_mode("exclusive")
            one.set_mode("exclusive")
            self.assertEqual(one.mode, "exclusive")
            with self.assertRaises(bakeryd.BusyError):
                self.client.try_lock("modes", mode="shared")
            one.set_mode("shared")
            self.client.try_lock("modes", mode="shared").unlock()

    def test_value(self) -> None:
        """A value has its bytes and the token of its writer."""
        with self.client.lock("value") as hold:
            self.assertEqual(self.client.value("value"), (None, 0, 0, ""))
            hold.set_value(bytes(range(256)))
            value = self.client.value("value")
            self.assertEqual((value.value, value.token, value.host), (bytes(range(256)), hold.token, 1))
        with self.client.lock("value") as hold:
            hold.set_value(b"")
            self.assertIsNone(self.client.value("value").value)
        with self.assertRaises(bakeryd.NoLockError) as missing:
            self.client.value("no such lock")
        self.assertIn("bakeryctl locks", missing.exception.hint)
        wrong: Any
        for wrong, message in (
            ("x", "value 'x' is of type str, want bytes, at most 256"),
            (bytes(257), "of 257 bytes, want at most 256"),
        ):
            with self.client.lock("value") as hold, self.assertRaisesRegex(bakeryd.InvalidError, message):
                hold.set_value(wrong)

    def test_directory(self) -> None:
        """Locks are created, listed and removed."""
        info, created = self.client.create("permits", 2)
        self.assertEqual((info.name, info.permits, created), ("permits", 2, True))
        self.assertEqual(self.client.create("permits", 2, timeout=60), (info, False))
        self.assertEqual(self.client.locks(), [info])
        with self.assertRaises(bakeryd.Error) as other:
            self.client.create("permits", 3)
        self.assertEqual(other.exception.code, "permits")
        with self.client.lock("permits", permits=2), self.assertRaises(bakeryd.BusyError):
            self.client.remove("permits", nonblock=True)
        self.client.remove("permits", timeout=60, if_no_value=True)
        self.assertEqual(self.client.locks(), [])
        with self.assertRaises(bakeryd.NoLockError):
            self.client.remove("permits")

    def test_request(self) -> None:
        """A holder is told of each request, one after the other."""
        heard: List[bakeryd.Request] = []

        def on_request(hold: bakeryd.Hold, request: bakeryd.Request) -> None:
            heard.append(request)
            if len(heard) == 2:
                hold.unlock()

        hold = self.client.lock("request", on_request=on_request)
        self.client.request("request", "first")
        self.client.request("request", "second")
        space.eventually("the holder has released it", lambda: not self.host.clients("request"))
        self.assertEqual([(each.host, each.message) for each in heard], [(1, "first"), (1, "second")])
        with self.assertRaises(bakeryd.LostError):
            hold.check()
        with self.assertRaises(bakeryd.Error) as free:
            self.client.request("request")
        self.assertEqual(free.exception.code, "free")

    def test_other_calls(self) -> None:
        """Calls without a method of their own."""
        with self.client.lock("call"):
            answer = self.client.call("GET", "/v1/blocker?name=call")
            self.assertIn("pid ", answer["text"])
        with self.assertRaises(bakeryd.InvalidError):
            self.client.call("POST", "/v1/create", {"name": ""})
        self.assertEqual(self.client.status()["locks"][0]["name"], "call")

    def test_exception_in_the_block(self) -> None:
        """An exception in the block releases the lock and is passed on."""
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            with self.client.lock("raises"):
                1 / 0
        with self.client.try_lock("raises") as hold:
            hold.unlock()
            hold.unlock()
            self.client.try_lock("raises").unlock()
            with self.assertRaisesRegex(bakeryd.LostError, 'lock "raises": it was unlocked'):
                hold.check()

    def test_many_threads(self) -> None:
        """Threads exclude each other, and leave no thread behind."""
        count, tokens = 0, []

        def work() -> None:
            nonlocal count
            for _ in range(5):
                with self.client.lock("threads") as hold:
                    before = count
                    tokens.append(hold.token)
                    hold.check()
                    count = before + 1

        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(count, 100)
        self.assertEqual(tokens, sorted(set(tokens)))
        space.eventually("the threads of the holds have ended", lambda: not holding_threads())

    def test_guide(self) -> None:
        """Each example of the guide runs as it stands, typed line by line."""

        def client_of_the_host() -> bakeryd.Client:
            return self.client

        section = GUIDE.read_text().split("## From Python")[1].split("\n## ")[0]
        examples = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        wants = (
            "make a backup of orders with the token [0-9]+\nmake a backup of accounts with the token [0-9]+\n",
            "read the catalogue\n",
            "work with the token [0-9]+\n",
        )
        self.assertEqual(len(examples), len(wants))
        for example, want in zip(examples, wants):
            typed, said = code.InteractiveConsole(), io.StringIO()
            with unittest.mock.patch.object(bakeryd, "Client", client_of_the_host):
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    for line in [*example.splitlines(), ""]:
                        typed.push(line)
            self.assertRegex(said.getvalue(), f"^{want}$")
        self.assertEqual(self.host.clients("nightly-backup"), [])


def holding_threads() -> List[str]:
    """Return the names of the threads of holds."""
    return [each.name for each in threading.enumerate() if each.name.startswith("bakeryd hold")]


class Refusals(unittest.TestCase):
    """Errors without a bakeryd."""

    def test_arguments(self) -> None:
        """Bad arguments are refused before anything is sent: there is no bakeryd."""
        client = bakeryd.Client("/nonexistent/sock")
        timed: List[Callable[..., Any]] = [client.lock, client.create, client.remove]
        named: List[Callable[..., Any]] = [*timed, client.try_lock, client.value, client.request]
        value: Any
        for value, message in (
            ("", 'lock name "" of 0 bytes, want 1 to 128'),
            ("x" * 129, "of 129 bytes"),
            ("a\nb", "lock name 'a\\\\nb', want no control"),
            ("\ud800", "surrogates"),
            (b"x", "lock name b'x', want a str"),
        ):
            for call in named:
                with self.subTest(name=value, call=call), self.assertRaisesRegex(bakeryd.InvalidError, message):
                    call(value)
        for value in (0, -1, float("nan"), float("inf"), "1"):
            for call in timed:
                with self.subTest(timeout=value, call=call):
                    with self.assertRaisesRegex(ValueError, "timeout .* want seconds, more than 0.*; hint: use None"):
                        call("x", timeout=value)
        value = "reader"
        with self.assertRaisesRegex(bakeryd.InvalidError, "mode 'reader', want \"exclusive\" or \"shared\""):
            client.lock("x", mode=value)
        with self.assertRaisesRegex(bakeryd.InvalidError, "permits -1, want a whole number from 0"):
            client.lock("x", permits=-1)
        with self.assertRaisesRegex(bakeryd.InvalidError, "permits 0, want a whole number from 1"):
            client.create("x", 0)
        with self.assertRaisesRegex(bakeryd.InvalidError, "1 to 107 bytes"):
            bakeryd.Client("/" + "x" * 107)

    def test_unreachable(self) -> None:
        """Without bakeryd the error names the socket, the cause and the remedy."""
        client = bakeryd.Client(pathlib.Path("/nonexistent/sock"))
        want = 'connect to bakeryd at /nonexistent/sock: No such file or directory; hint: is bakeryd running?'
        calls: List[Callable[..., Any]] = [client.lock, client.try_lock, client.value, client.create]
        for call in calls:
            with self.assertRaisesRegex(bakeryd.UnreachableError, re.escape(want)):
                call("x")

    @unittest.skipUnless(space.ROOT, "needs root, to give a file to a group")
    def test_closed(self) -> None:
        """Without permission the error names the group of the socket. A file stands for the socket."""
        error = PermissionError(errno.EACCES, "Permission denied")
        group = grp.getgrnam("nogroup")
        with tempfile.NamedTemporaryFile() as file, unittest.mock.patch("socket.socket.connect", side_effect=error):
            for path, gid, remedy in (
                (file.name, 0, "run it as root$"),
                (file.name, group.gr_gid, "run it as root, or add the user to the group nogroup: usermod -aG nogroup USER"),
                (file.name, 123456, "the group 123456: usermod -aG 123456 USER"),
                ("/nonexistent/sock", 0, "the group bakery: usermod -aG bakery USER"),
            ):
                os.chown(file.name, -1, gid)
                with self.subTest(path=path, gid=gid):
                    with self.assertRaisesRegex(bakeryd.UnreachableError, "Permission denied; hint: .*" + remedy):
                        bakeryd.Client(path).status()

    def test_prefix(self) -> None:
        """A message of bakeryd that says already what was being done gets no second prefix."""
        error = bakeryd.Error('create lock "x": it is full')
        error.prefix('create lock "x"')
        self.assertEqual(str(error), 'create lock "x": it is full')

    def test_errors(self) -> None:
        """Errors survive pickling, and print no control characters."""
        for kind in (bakeryd.Error, bakeryd.TimeoutError, bakeryd.InvalidError, bakeryd.LostError):
            error = kind("a \x1b[31mmessage", "do this", "other")
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), again.message, again.hint, again.code), (kind, error.message, "do this", "other"))
            self.assertEqual(str(again), "a \\x1b[31mmessage; hint: do this")
