"""The loss of holds and of places in the queue, and refusals of the policy."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import unittest
from typing import List

import bakeryd
import space
from bakeryd._wire import boottime

POLICY = "allow user nobody public-*\n"


class Losses(space.Case):
    """The lease is short, and ends."""

    lease = space.SHORT

    def lose(self, how: str) -> bakeryd.LostError:
        """Lose a lock by what makes bakeryd silent, and return the error of the with block."""
        called: List[bakeryd.Hold] = []
        with self.assertRaises(bakeryd.LostError) as raised:
            with self.client.lock("lost", on_lost=called.append) as hold:
                if how == "killed":
                    self.host.end(signal.SIGKILL)
                else:
                    self.host.stop()
                self.assertTrue(hold.warned.wait(space.PATIENCE))
                with self.assertRaises(bakeryd.LostError):
                    hold.check()
                self.assertTrue(hold.lost.wait(space.PATIENCE))
                self.assertGreaterEqual(boottime(), hold.deadline)
                self.assertEqual(hold.remaining(), 0)
                with self.assertRaises(bakeryd.LostError):
                    hold.set_value(b"late")
        self.assertEqual(called, [hold])
        return raised.exception

    def test_killed_for_good(self) -> None:
        """Without bakeryd the hold is lost at the deadline."""
        self.assertIn("the lease ended without a renewal", self.lose("killed").message)

    def test_standing_still(self) -> None:
        """The same if bakeryd stands still: the connection does not break, and no event arrives."""
        self.assertIn("the lease ended without a renewal", self.lose("stopped").message)

    def test_standing_still_since_the_grant(self) -> None:
        """The block does not run on a lock that another host has got meanwhile."""
        other, hold = self.another_host(2), self.client.lock("paused")
        worker = self.worker("""
try:
    with client.lock("paused", on_waiting=lambda *_: say("waits")): say("inside")
except bakeryd.LostError: say("lost")
""")
        self.assert_said(worker, "waits")
        pid = worker.process.pid
        worker.process.send_signal(signal.SIGSTOP)
        hold.unlock()
        space.eventually("it is granted", lambda: [c["pid"] for c in self.host.clients("paused") if "token" in c] == [pid])
        self.host.end(signal.SIGKILL)
        with other.client.lock("paused"):
            worker.process.send_signal(signal.SIGCONT)
            self.assert_said(worker, "lost")

    def test_host_loses_its_lease(self) -> None:
        """bakeryd reports the loss, with the reason; the exception of the block is passed on."""
        other = self.another_host(2)
        called: List[bakeryd.Hold] = []
        with self.assertRaises(KeyError) as raised:
            with self.client.lock("evicted", on_lost=called.append) as hold:
                evict = [str(space.PROGRAMS / "bakeryctl"), "--socket", other.socket, "evict", "1", "--yes"]
                subprocess.run(evict, check=True, capture_output=True)
                self.assertTrue(hold.lost.wait(space.PATIENCE))
                with self.assertRaisesRegex(bakeryd.LostError, 'lock "evicted" lost: '):
                    hold.check()
                space.eventually("the callback was called", lambda: called)
                raise KeyError("of the block")
        self.assertIsNone(raised.exception.__cause__)
        with other.client.lock("evicted") as next_hold:
            self.assertGreater(next_hold.token, hold.token)

    def test_unlock_while_bakeryd_is_gone(self) -> None:
        """The next bakeryd releases the lock at the deadline that it knows."""
        hold = self.client.lock("gone")
        self.host.end()
        hold.unlock()
        self.host.start()
        with self.client.lock("gone") as again:
            self.assertGreater(again.token, hold.token)

    def test_paused_process(self) -> None:
        """A process that was stopped beyond the deadline still holds the lock if bakeryd has renewed it."""
        worker = self.worker("""
hold = client.lock("paused", on_lost=lambda h: say("lost"))
say(hold.deadline)
hear()
hold.check()
say("held", hold.warned.is_set())
hold.unlock()
""")
        deadline = float(worker.said())
        worker.process.send_signal(signal.SIGSTOP)
        space.eventually("the deadline passes", lambda: boottime() > deadline + 1)
        worker.tell()
        worker.process.send_signal(signal.SIGCONT)
        self.assert_said(worker, "held False")

    def test_waiter_without_bakeryd(self) -> None:
        """A waiter gives up when bakeryd does not come back within a lease."""
        with self.assertRaises(bakeryd.LostError), self.client.lock("waiting") as hold:
            waiter = self.worker("""
try:
    client.lock("waiting", on_waiting=lambda ahead, queued: say("waits"))
except bakeryd.UnreachableError as e:
    say("gave up", e.code)
""")
            self.assert_said(waiter, "waits")
            self.host.end(signal.SIGKILL)
            self.assert_said(waiter, "gave up unreachable")
            self.assertTrue(hold.lost.wait(space.PATIENCE))


class Policy(space.Case):
    """A policy file decides which users take which locks."""

    @unittest.skipUnless(space.ROOT, "needs root, to become another user")
    def test_forbidden(self) -> None:
        """A refusal names user, lock, file and remedy."""
        policy = pathlib.Path(self.directory / "policy")
        policy.write_text(POLICY)
        host = self.another_host(2, "--policy-file", str(policy))
        os.chmod(host.socket, 0o666)  # this machine may have no group bakery
        worker = self.worker("""
import pwd
os.chdir(os.path.dirname(sys.argv[1]))
os.setgroups([])
os.setuid(pwd.getpwnam("nobody").pw_uid)
client = bakeryd.Client("sock")
for name in ("public-one", "secret"):
    try:
        with client.lock(name):
            say("holds", name)
    except bakeryd.ForbiddenError as e:
        say(e.code, e)
""", host.socket)
        self.assert_said(worker, "holds public-one")
        said = worker.said()
        self.assertRegex(said, '^forbidden lock "secret": user nobody .* may not lock "secret": no line of .*/policy allows it')
        self.assertIn('add the line "allow user nobody secret"', said)
