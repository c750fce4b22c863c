"""Steps on two hosts, and the end of a host, of lockspaces and of a lease."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, List

import libsanlock as lib
import sanlock
from onehost import IO_TIMEOUT, LS, Areas
from process import FD, Client, hosts, step, until


def join(c: Client, a: Areas) -> Client:
    """Join the lockspace as host 2, and return a client there."""
    d = Client(2)
    step("host2.version", d(lib.version))
    step("host2.read-lockspace", d(sanlock.read_lockspace, *a.at(0)))
    d(sanlock.add_lockspace, LS, 2, *a.at(0), IO_TIMEOUT, wait=False)
    step("host2.inq-lockspace.wait", d(sanlock.inq_lockspace, LS, 2, *a.at(0), wait=True))
    for name, each in (("host1", c), ("host2", d)):
        step(f"{name}.get-hosts", hosts(until(lambda: each(sanlock.get_hosts, LS), both_live)))
    step("host1.get-hosts.of-host2", hosts(until(lambda: c(sanlock.get_hosts, LS, 2), lambda r: r[0]["flags"] == 3)))
    return d


def both_live(result: Any) -> bool:
    """Report whether both hosts are live."""
    return isinstance(result, list) and [h["flags"] for h in result] == [3, 3]


def modes(c: Client, d: Client, a: Areas) -> None:
    """Hold on one host and acquire on the other. c is on host 1 and d on host 2."""
    c(sanlock.acquire, *a.res(1), slkfd=FD)
    step("two.exclusive-exclusive", d(sanlock.acquire, *a.res(1), slkfd=FD))
    # A late renewal makes a host silent, which these calls do not wait for: they are repeated.
    nowait = lib.ACQUIRE_OWNER_NOWAIT
    step("two.exclusive-exclusive.nowait", until(lambda: d(lib.acquire, FD, -1, nowait, [a.lib(1)]), lambda r: r == -243))
    step("two.exclusive-shared", d(sanlock.acquire, *a.res(1), slkfd=FD, shared=True))
    step("two.exclusive.lvb", d(sanlock.acquire, *a.res(1), slkfd=FD, lvb=True))
    step("two.exclusive.orphan", d(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [a.lib(1)]))
    step("two.exclusive.owners", hosts(d(sanlock.read_resource_owners, *a.res(1))))
    step("two.exclusive.release-by-other", d(sanlock.release, *a.res(1), slkfd=FD))
    step("two.several-one-held", d(lib.acquire, FD, -1, 0, [a.lib(2), a.lib(1)]))
    step("two.several-one-held.inquire", d(lib.inquire, FD, -1))
    c(sanlock.release, *a.res(1), slkfd=FD)
    step("two.released", d(sanlock.acquire, *a.res(1), slkfd=FD))
    step("two.released.inquire", d(lib.inquire, FD, -1))
    step("two.released.owners", hosts(c(sanlock.read_resource_owners, *a.res(1))))
    step("two.released.read-resource", c(sanlock.read_resource, *a.at(1)))
    d(sanlock.release, *a.res(1), slkfd=FD)

    step("two.shared", c(sanlock.acquire, *a.res(3), slkfd=FD, shared=True))
    step("two.shared-shared", d(sanlock.acquire, *a.res(3), slkfd=FD, shared=True))
    step("two.shared.owners", hosts(c(sanlock.read_resource_owners, *a.res(3))))
    step("two.shared.exclusive-on-the-same-host", d(sanlock.acquire, *a.res(3), slkfd=FD))
    step("two.convert-with-both", c(lib.convert, FD, -1, 0, a.lib(3)))
    step("two.convert-with-both.nowait", until(lambda: c(lib.convert, FD, -1, nowait, a.lib(3)), lambda r: r == -11))
    step("two.convert-with-both.inquire", c(lib.inquire, FD, -1))
    c(sanlock.release, *a.res(3), slkfd=FD)
    step("two.shared-exclusive", c(sanlock.acquire, *a.res(3), slkfd=FD))
    step("two.shared-exclusive.nowait", until(lambda: c(lib.acquire, FD, -1, nowait, [a.lib(3)]), lambda r: r == -11))
    step("two.shared-exclusive.owners", hosts(c(sanlock.read_resource_owners, *a.res(3))))
    step("two.convert-alone", d(lib.convert, FD, -1, 0, a.lib(3)))
    step("two.convert-alone.shared", c(sanlock.acquire, *a.res(3), slkfd=FD, shared=True))
    step("two.convert-alone.owners", hosts(c(sanlock.read_resource_owners, *a.res(3))))
    step("two.convert-back", d(lib.convert, FD, -1, 0, a.lib(3, lib.RES_SHARED)))
    step("two.convert-back.shared", c(sanlock.acquire, *a.res(3), slkfd=FD, shared=True))
    for each in (c, d):
        each(lib.release, FD, -1, lib.REL_ALL, [])
    step("two.shared.released", c(sanlock.acquire, *a.res(3), slkfd=FD))
    c(lib.release, FD, -1, lib.REL_ALL, [])

    d(sanlock.acquire, *a.res(4), slkfd=FD, lvb=True)
    d(sanlock.set_lvb, *a.res(4), b"of host 2")
    d(sanlock.release, *a.res(4), slkfd=FD)
    c(sanlock.acquire, *a.res(4), slkfd=FD, lvb=True)
    step("two.lvb", c(sanlock.get_lvb, *a.res(4), 16))
    c(sanlock.release, *a.res(4), slkfd=FD)

    e = Client(2)
    e(lib.acquire, FD, -1, 0, [a.lib(5, lib.RES_PERSISTENT)])
    e.kill()
    until(lambda: d(sanlock.acquire, *a.res(5), slkfd=FD), lambda r: r == "EUCLEAN")
    step("two.orphan", c(sanlock.acquire, *a.res(5), slkfd=FD))
    step("two.orphan.adopt", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [a.lib(5)]))
    step("two.orphan.adopt-there", d(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [a.lib(5)]))
    d(lib.release, FD, -1, lib.REL_ALL, [])
    step("two.orphan.released", c(sanlock.acquire, *a.res(5), slkfd=FD))
    c(lib.release, FD, -1, lib.REL_ALL, [])


def rejoin(c: Client, d: Client, a: Areas) -> None:
    """Leave as host 2 and join again, and meanwhile try the id of the other host."""
    step("leave.unused-held", held_then(d, a, 2, lambda: d(sanlock.rem_lockspace, LS, 2, *a.at(0), unused=True)))
    d(lib.release, FD, -1, lib.REL_ALL, [])
    step("leave.unused", d(sanlock.rem_lockspace, LS, 2, *a.at(0), unused=True))
    step("leave.get-hosts", hosts(until(lambda: c(sanlock.get_hosts, LS), lambda r: len(r) == 1)))
    step("leave.get-hosts.of-host2", hosts(c(sanlock.get_hosts, LS, 2)))
    step("leave.acquire", d(sanlock.acquire, *a.res(2), slkfd=FD))
    step("leave.get-lockspaces", d(sanlock.get_lockspaces))
    step("rejoin", d(sanlock.add_lockspace, LS, 2, *a.at(0), IO_TIMEOUT))
    step("rejoin.get-hosts", hosts(until(lambda: c(sanlock.get_hosts, LS, 2), lambda r: r[0]["flags"] == 3)))


def held_then(c: Client, a: Areas, number: int, call: Callable[[], Any]) -> Any:
    """Acquire a resource, and return what the call returns."""
    c(sanlock.acquire, *a.res(number), slkfd=FD)
    return call()


def removal(c: Client, a: Areas) -> None:
    """Remove a second lockspace of host 1 while its resources are held."""
    ls, place = b"ls2", a.at(30)
    res = (ls, b"x", [a.at(31)])
    c(sanlock.write_resource, *res)
    step("remove.add", c(sanlock.add_lockspace, ls, 5, *place, IO_TIMEOUT))
    holder, restricted = Client(1), Client(1)
    restricted(lib.restrict, FD, lib.RESTRICT_SIGKILL)
    restricted(signal.signal, signal.SIGTERM, signal.SIG_DFL)
    holder(sanlock.acquire, *res, slkfd=FD, shared=True)
    holder(sanlock.killpath, "/bin/touch", [a.path + ".killpath"], slkfd=FD)
    restricted(sanlock.acquire, *res, slkfd=FD, shared=True)
    step("remove.unused-held", c(sanlock.rem_lockspace, ls, 5, *place, unused=True))
    step("remove.held", c(sanlock.rem_lockspace, ls, 5, *place))
    step("remove.held.holder", until(holder.ended, lambda r: r is not None))
    step("remove.held.killpath", "run" if os.path.exists(a.path + ".killpath") else "not run")
    step("remove.held.restricted", until(restricted.ended, lambda r: r is not None))
    step("remove.held.owners", hosts(c(sanlock.read_resource_owners, *res)))

    step("remove.add-again", c(sanlock.add_lockspace, ls, 5, *place, IO_TIMEOUT))
    step("remove.get-hosts", hosts(until(lambda: c(sanlock.get_hosts, ls), lambda r: r != "EAGAIN")))
    step("remove.acquire-after", c(sanlock.acquire, *res, slkfd=FD))
    step("remove.acquire-after.read-resource", c(sanlock.read_resource, *a.at(31)))
    c(sanlock.release, *res, slkfd=FD)
    step("remove.orphans.config", c(lib.set_config, ls, lib.CONFIG_USED_BY_ORPHANS))
    keep = lib.resource(*res, flags=lib.RES_PERSISTENT)
    d = Client(1)
    d(lib.acquire, FD, -1, 0, [keep])
    d.kill()
    until(lambda: c(sanlock.acquire, *res, slkfd=FD), lambda r: r == "EUCLEAN")
    step("remove.orphans.unused", c(sanlock.rem_lockspace, ls, 5, *place, unused=True))
    step("remove.orphans.async", c(sanlock.rem_lockspace, ls, 5, *place, wait=False))
    step("remove.orphans.inq", c(sanlock.inq_lockspace, ls, 5, *place))
    step("remove.orphans.release", c(lib.release, FD, -1, lib.REL_ORPHAN, [lib.resource(ls, b"")]))
    step("remove.orphans.removed", until(lambda: c(sanlock.inq_lockspace, ls, 5, *place), lambda r: r is False))

    c(sanlock.add_lockspace, ls, 5, *place, IO_TIMEOUT)
    d = Client(1)
    d(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [keep])
    d.kill()
    until(lambda: c(sanlock.acquire, *res, slkfd=FD), lambda r: r == "EUCLEAN")
    step("remove.orphans-left", c(sanlock.rem_lockspace, ls, 5, *place))
    step("remove.orphans-left.owners", hosts(c(sanlock.read_resource_owners, *res)))
    c(sanlock.add_lockspace, ls, 5, *place, IO_TIMEOUT)
    step("remove.orphans-left.adopt", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN_ONLY | lib.ACQUIRE_LVB, [keep]))
    step("remove.orphans-left.acquire", c(sanlock.acquire, *res, slkfd=FD))
    c(lib.release, FD, -1, lib.REL_ALL, [])

    c(lib.set_config, ls, lib.CONFIG_USED)
    step("remove.used.async", c(sanlock.rem_lockspace, ls, 5, *place, wait=False, unused=True))
    step("remove.used.set-used", until(lambda: c(lib.set_config, ls, lib.CONFIG_USED), lambda r: r != 0))
    step("remove.used.acquire", c(sanlock.acquire, *res, slkfd=FD))
    step("remove.used.again", c(sanlock.rem_lockspace, ls, 5, *place, wait=False))
    step("remove.used.inq", c(sanlock.inq_lockspace, ls, 5, *place))
    step("remove.used.set-unused", c(lib.set_config, ls, lib.CONFIG_UNUSED))
    step("remove.used.removed", until(lambda: c(sanlock.inq_lockspace, ls, 5, *place), lambda r: r is False))


def dead_host(c: Client, d: Client, a: Areas, pid: int) -> Callable[[], None]:
    """Kill the daemon of host 2 under its clients, and return what waits until host 2 is dead."""
    for number in (2, 5):
        step(f"dead.holds.{number}", d(sanlock.acquire, *a.res(number), slkfd=FD))
        step(f"dead.held.{number}", c(sanlock.acquire, *a.res(number), slkfd=FD))
    step("dead.holds-shared", d(sanlock.acquire, *a.res(3), slkfd=FD, shared=True))
    step("dead.held-shared", c(sanlock.acquire, *a.res(3), slkfd=FD))
    reader, waits, polls = Client(1), Client(1), Client(1)
    step("dead.shared", reader(sanlock.acquire, *a.res(3), slkfd=FD, shared=True))
    os.kill(pid, signal.SIGKILL)
    waits.start(codes, FD, 0, a.lib(5))
    polls.start(codes, FD, lib.ACQUIRE_OWNER_NOWAIT, a.lib(2))
    step("dead.call", "failed" if d(lib.inquire, FD, -1)[0] < 0 else "OK")
    step("dead.owners-at-once", hosts(c(sanlock.read_resource_owners, *a.res(3))))

    def wait() -> None:
        step("dead.get-hosts", hosts(until(lambda: c(sanlock.get_hosts, LS, 2), lambda r: r[0]["flags"] == 5)))
        step("dead.acquire", waits.finish())
        step("dead.acquire.nowait", polls.finish())
        step("dead.read-resource", c(sanlock.read_resource, *a.at(2)))
        step("dead.convert", until(lambda: reader(lib.convert, FD, -1, 0, a.lib(3)), lambda r: r == 0))
        step("dead.owners", hosts(c(sanlock.read_resource_owners, *a.res(3))))
        for each in (reader, waits, polls):
            each.kill()
    return wait


def codes(fd: int, flags: int, r: lib.Resource) -> List[str]:
    """Acquire until that succeeds, and return the names of the different results in their order.

    Whether the host is live at the first of the calls depends on the machine: that result is left out.
    """
    names: List[str] = []
    until(lambda: names.append(lib.name_of(lib.acquire(fd, -1, flags, [r]))), lambda _: names[-1] == "OK")
    return [name for name in dict.fromkeys(names) if name != "SANLK_ACQUIRE_IDLIVE"]


def id_in_use(c: Client, a: Areas) -> Callable[[], None]:
    """Begin to join on host 3 with the id of host 1, and return what waits for the result."""
    e = Client(3, registered=False)
    e.start(sanlock.add_lockspace, LS, 1, *a.at(0), IO_TIMEOUT)

    def wait() -> None:
        step("id-in-use", e.finish())
        step("id-in-use.get-lockspaces", e(sanlock.get_lockspaces))
        step("id-in-use.get-hosts", hosts(c(sanlock.get_hosts, LS, 1)))
        e.kill()
    return wait


def lease_lost(c: Client, a: Areas, disk: str) -> None:
    """Cut off the lock disk under clients that end, ignore SIGTERM, and release in time."""
    said = a.path + ".said"
    with open(said, "w", encoding="utf-8"):
        pass
    note = f"/bin/sh -c echo\\ $0\\ $1\\ >>{said}"
    killed, terminated, obeys, restricted, releases = (Client(1) for _ in range(5))
    for number, each in enumerate((killed, terminated, obeys, restricted, releases)):
        step(f"lost.acquire.{number}", each(sanlock.acquire, *a.res(1 + number), slkfd=FD))
    killed(on, signal.SIGTERM, said, "killed: SIGTERM")
    terminated(on, signal.SIGTERM, said, "terminated: SIGTERM")
    restricted(on, signal.SIGTERM, said, "restricted: SIGTERM")
    obeys(signal.signal, signal.SIGTERM, signal.SIG_DFL)
    releases(release_on, signal.SIGUSR1, FD, said)
    program, _, args = note.partition(" ")
    step("lost.killpath", killed(lib.killpath, FD, 1, program.encode(), args.encode()))
    step("lost.restrict", restricted(lib.restrict, FD, lib.RESTRICT_SIGKILL))
    step("lost.killpath.releases", releases(lib.killpath, FD, 1, b"/bin/kill", b"-USR1"))
    os.truncate(disk, 0)
    step("lost.obeys", until(obeys.ended, lambda r: r is not None))
    step("lost.killed", until(killed.ended, lambda r: r is not None))
    step("lost.terminated", until(terminated.ended, lambda r: r is not None))
    step("lost.releases", "runs" if releases.ended() is None else releases.ended())
    with open(said, encoding="utf-8") as f:
        step("lost.said", sorted(set(f.read().splitlines())))
    step("lost.lockspace-while-restricted-runs", c(sanlock.inq_lockspace, LS, 1, *a.at(0)))
    step("lost.acquire", c(sanlock.acquire, *a.res(9), slkfd=FD))
    restricted.kill()
    step("lost.lockspace", until(lambda: c(sanlock.inq_lockspace, LS, 1, *a.at(0)), lambda r: r is False))
    step("lost.get-lockspaces", c(sanlock.get_lockspaces))


def on(number: int, path: str, text: str) -> None:
    """Write a line to a file at each signal, and go on."""
    def handler(*_: Any) -> None:
        with open(path, "a", encoding="utf-8") as f:
            f.write(text + "\n")
    signal.signal(number, handler)


def release_on(number: int, fd: int, path: str) -> None:
    """Release all that a registered socket holds at a signal, and go on."""
    def handler(*_: Any) -> None:
        result = lib.release(fd, -1, lib.REL_ALL, [])
        with open(path, "a", encoding="utf-8") as f:
            f.write(f"releases: {lib.name_of(result)}\n")
    signal.signal(number, handler)
