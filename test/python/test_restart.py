"""Holds and places in the queue over restarts of bakeryd, and its silence."""

from __future__ import annotations

import signal
import threading
import unittest.mock
from typing import List

import bakeryd
import bakeryd._hold
import space


class Restarts(space.Case):
    """bakeryd is restarted, and the lease is long."""

    def test_hold_survives(self) -> None:
        """A hold keeps lock and token, and its deadline moves again."""
        called: List[bakeryd.Hold] = []
        with self.client.lock("held", on_lost=called.append) as hold:
            hold.set_value(b"before")
            for by in (signal.SIGTERM, signal.SIGKILL):
                before = hold.deadline
                self.host.end(by)
                hold.check()
                self.host.start()
                space.eventually("the lease is renewed", lambda: hold.deadline > before)
                with self.assertRaises(bakeryd.BusyError):
                    self.client.try_lock("held")
                hold.set_value(b"after")
                self.assertEqual(self.client.value("held").token, hold.token)
            hold.check()
        self.client.try_lock("held").unlock()
        self.assertEqual(called, [])

    def test_mode_survives(self) -> None:
        """A hold keeps the mode that was set."""
        other = self.another_host(2)
        with self.client.lock("mode") as hold:
            hold.set_mode("shared")
            before = hold.deadline
            self.host.end()
            self.host.start()
            space.eventually("the lease is renewed", lambda: hold.deadline > before)
            self.assertEqual(hold.mode, "shared")
            other.client.lock("mode", mode="shared", timeout=60).unlock()
            with self.assertRaises(bakeryd.BusyError):
                other.client.try_lock("mode")

    def test_place_survives(self) -> None:
        """Waiters keep their order."""
        code = """
with client.lock("queue", timeout=600, on_waiting=lambda ahead, queued: say("ahead", ahead)):
    say("holds")
    hear()
"""
        workers = [self.worker(code)]
        self.assert_holds(workers[0])
        for ahead in (1, 2):
            workers.append(self.worker(code))
            self.assert_said(workers[-1], f"ahead {ahead}")
        self.host.end()
        self.host.start()
        space.eventually("all are back", lambda: len(self.host.clients("queue")) == 3)
        workers[0].tell()
        self.assert_holds(workers[1])
        with self.assertRaises(bakeryd.BusyError):
            self.client.try_lock("queue")
        workers[1].tell()
        self.assert_holds(workers[2])

    def test_unlock_while_bakeryd_stands_still(self) -> None:
        """unlock says that the lock is not released yet."""
        hold = self.client.lock("stopped")
        self.host.stop()
        with self.assertRaisesRegex(bakeryd.UnreachableError, 'unlock "stopped": the lock is not released yet, after 2 s'):
            hold.unlock()
        self.host.process.send_signal(signal.SIGCONT)
        self.client.lock("stopped").unlock()

    def test_warning_by_an_injected_clock(self) -> None:
        """The holder is warned in the grace, before the lock is lost, although no event arrives."""
        seen: List[bool] = []
        hold = self.client.lock("clock", on_lost=lambda h: seen.append(h.lost.is_set()))
        self.host.stop()
        clock = unittest.mock.Mock(return_value=hold.deadline - hold.grace)
        with unittest.mock.patch.object(bakeryd._hold, "boottime", clock):

            def rung(event: threading.Event) -> bool:
                hold._alarm.set(0)  # it runs on the real clock
                return event.is_set()

            space.eventually("the holder is warned", lambda: rung(hold.warned))
            space.eventually("the callback was called", lambda: seen)
            self.assertEqual(seen, [False])
            self.assertFalse(hold.lost.is_set())
            with self.assertRaisesRegex(bakeryd.LostError, "the lease is about to end without a renewal"):
                hold.check()
            clock.return_value = hold.deadline
            space.eventually("the hold is lost", lambda: rung(hold.lost))
            with self.assertRaisesRegex(bakeryd.LostError, 'lock "clock" lost: the lease ended without a renewal; hint: stop'):
                hold.check()
            hold.unlock()
        self.assertEqual(seen, [False])

    def test_late_alarm_asks_bakeryd(self) -> None:
        """After a pause beyond the deadline bakeryd says whether the hold is valid."""
        hold = self.client.lock("late")
        link = hold._link
        late = unittest.mock.Mock(return_value=hold.deadline + 1)
        with unittest.mock.patch.object(bakeryd._hold, "boottime", late):
            hold._alarm.set(0)
            space.eventually("it has asked", lambda: hold._link is not link)
        hold.check()
        hold.unlock()
