"""Forks, interrupts and ends of processes that hold a lock or wait for it."""

from __future__ import annotations

import signal
import sys
import unittest

import space


class Processes(space.Case):
    """Processes on one host."""

    def test_fork_does_not_keep_the_lock(self) -> None:
        """The child of a fork has no part in the hold: its exit from the block does not release it, and the lock
        passes on when the parent dies."""
        worker = self.worker("""
try:
    with client.lock("fork") as hold:
        child = os.fork()
        if child == 0:
            try:
                hold.check()
            except bakeryd.LostError as e:
                say(e)
            say("lost", hold.lost.is_set(), hold.warned.is_set(), hold.remaining() > 0)
            hold.unlock()
            with client.lock("of the child"):
                say("the child holds another lock")
        else:
            time.sleep(600)
except bakeryd.LostError:
    say("the block of the child has raised LostError")
    time.sleep(600)
""")
        why = f"process {worker.process.pid} holds it, and this one is a fork of that"
        self.assert_said(worker, f'lock "fork": {why}; hint: take the lock in this process')
        self.assert_said(worker, "lost True True True", "the child holds another lock")
        self.assert_said(worker, "the block of the child has raised LostError")
        self.assertEqual(len(self.host.clients("fork")), 1)
        worker.process.kill()
        self.client.lock("fork").unlock()

    def test_multiprocessing_and_commands(self) -> None:
        """A process of multiprocessing takes the same lock when the parent has ended; a command does not keep it."""
        worker = self.worker("""
import multiprocessing, subprocess
def work():
    with client.lock("pool", on_waiting=lambda ahead, queued: say("waits")):
        say("the child holds")
        hear()
hold = client.lock("pool")
subprocess.Popen(["sleep", "600"], close_fds=False)
multiprocessing.get_context("fork").Process(target=work).start()
hear()
os.kill(os.getpid(), signal.SIGKILL)
""")
        self.assert_said(worker, "waits")
        worker.tell()
        self.assert_said(worker, "the child holds")

    def test_fork_while_threads_lock(self) -> None:
        """Forks at any moment leave no lock behind, and each child can use the client."""
        worker = self.worker("""
stop = threading.Event()
def work(n):
    while not stop.is_set():
        with client.lock(f"busy {n}"):
            pass
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for n in range(20):
    child = os.fork()
    if child == 0:
        with client.lock("child") as hold:
            hold.check()
        os._exit(7)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7: say("failed")
stop.set()
for t in threads: t.join()
say("done")
""")
        self.assert_said(worker, "done")
        for n in range(4):
            self.client.try_lock(f"busy {n}").unlock()

    def test_fork_while_waiting(self) -> None:
        """The lock is granted to the parent only, although the child returns into the wait, too."""
        hold = self.client.lock("forked")
        worker = self.worker("""
child = None
def waiting(ahead, queued):
    global child
    if child is None: child = os.fork()
try:
    with client.lock("forked", on_waiting=waiting):
        say("holds", child != 0)
        hear()
except bakeryd.LostError as e:
    say(e.message.replace(str(os.getppid()), "P"))
    os._exit(0)
""")
        self.assert_said(worker, 'lock "forked": process P requested it, and this one is a fork of that')
        hold.unlock()
        self.assert_said(worker, "holds True")
        worker.tell()

    def test_interrupt_ends_the_wait(self) -> None:
        """KeyboardInterrupt gives the place in the queue up."""
        hold = self.client.lock("interrupted")
        worker = self.worker("""
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    client.lock("interrupted", on_waiting=lambda ahead, queued: say("waits"))
except KeyboardInterrupt:
    say("interrupted", [t.name for t in threading.enumerate()])
hear()
""")
        self.assert_said(worker, "waits")
        worker.process.send_signal(signal.SIGINT)
        self.assert_said(worker, "interrupted ['MainThread']")
        space.eventually("it has left the queue", lambda: len(self.host.clients("interrupted")) == 1)
        hold.unlock()
        self.client.try_lock("interrupted").unlock()

    @unittest.skipIf(sys.version_info < (3, 11), "earlier interpreters interrupt between return and assignment")
    def test_interrupts_around_the_grant(self) -> None:
        """KeyboardInterrupt at any moment of lock leaves no hold behind."""
        worker = self.worker("""
import random
armed = False
def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
sys.unraisablehook = lambda _: None  # threading drops those in its weakref callbacks
interrupted = 0
tries = 0
while tries < 300 or not interrupted:
    tries += 1
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-3))
        hold = client.lock("grant")
        armed = False
    except (KeyboardInterrupt, RuntimeError) as e:
        # threading raises RuntimeError if the interrupt comes between a lock and its state.
        if not isinstance(e, KeyboardInterrupt) and not isinstance(e.__context__, KeyboardInterrupt): raise
        interrupted += 1
    else:
        hold.unlock()
for thread in threading.enumerate():
    if thread is not threading.current_thread() and thread.is_alive():
        thread.join()
say("interrupted", interrupted > 0)
hear()
""")
        self.assert_said(worker, "interrupted True")
        # bakeryd may not have noticed the last end yet.
        self.client.lock("grant", timeout=space.PATIENCE).unlock()

    def test_end_of_the_process(self) -> None:
        """A process that ends without unlock releases the lock."""
        for end in ("sys.exit()", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"):
            with self.subTest(end=end):
                self.assert_said(self.worker(f'hold = client.lock("end"); say("holds"); {end}'), "holds")
                self.client.lock("end").unlock()
