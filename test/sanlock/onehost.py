"""Steps on one host: areas, lockspaces, resources, modes, values, orphans."""

from __future__ import annotations

import os
from typing import Any, List, Tuple

import libsanlock as lib
import sanlock
from process import FD, Client, hosts, step, until

MIB = 1 << 20
LS = b"ls1"
IO_TIMEOUT = 2  # seconds; sanlock notices after 8 of these that a host is silent


class Areas:
    """The file in which the areas of a run are, each of 1 MiB: a lockspace, then resources."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "wb") as f:
            f.truncate(64 * MIB)

    def at(self, number: int) -> lib.Place:
        """Return the place of an area."""
        return self.path, number * MIB

    def res(self, number: int) -> Tuple[bytes, bytes, List[lib.Place]]:
        """Return what acquire and others want to know of a resource of the first lockspace."""
        return LS, b"r%d" % number, [self.at(number)]

    def lib(self, number: int, flags: int = 0, lver: int = 0) -> lib.Resource:
        """Return the same for libsanlock."""
        return lib.resource(*self.res(number), flags=flags, lver=lver)


def areas_without_a_lockspace(c: Client, a: Areas) -> None:
    """Write and read areas, before the daemon has a lockspace."""
    step("version", c(lib.version))
    step("align.file", c(sanlock.get_alignment, a.path))
    step("align.missing", c(sanlock.get_alignment, a.path + ".missing"))
    step("read-lockspace.never-written", c(sanlock.read_lockspace, *a.at(0)))
    step("read-lockspace.missing", c(sanlock.read_lockspace, a.path + ".missing"))
    step("read-lockspace.beyond-end", c(sanlock.read_lockspace, *a.at(64)))
    step("add-lockspace.never-written", c(sanlock.add_lockspace, LS, 1, *a.at(0), IO_TIMEOUT))
    step("write-lockspace", c(sanlock.write_lockspace, LS, *a.at(0), 0, IO_TIMEOUT))
    step("write-lockspace.missing", c(sanlock.write_lockspace, LS, a.path + ".missing", 0, 0, IO_TIMEOUT))
    step("write-lockspace.align-2M-sector-512", c(sanlock.write_lockspace, LS, *a.at(20), 0, IO_TIMEOUT, align=2 * MIB))
    step("write-lockspace.sector-4096", c(sanlock.write_lockspace, b"ls4k", *a.at(24), 0, IO_TIMEOUT, align=8 * MIB, sector=4096))
    step("write-lockspace.long-name", c(sanlock.write_lockspace, b"n" * 60, *a.at(33), 0, IO_TIMEOUT))
    step("read-lockspace", c(sanlock.read_lockspace, *a.at(0)))
    step("read-lockspace.as-4096", c(sanlock.read_lockspace, *a.at(0), align=8 * MIB, sector=4096))
    step("read-lockspace.4096-as-512", c(sanlock.read_lockspace, *a.at(24)))
    step("read-lockspace.long-name", c(sanlock.read_lockspace, *a.at(33)))
    step("read-lockspace.flags", c(lib.read_lockspace, a.at(0)))
    step("read-lockspace.4096.flags", c(lib.read_lockspace, a.at(24)))
    step("read-lockspace.host-7", c(lib.read_lockspace, a.at(0), LS, 7))
    step("read-lockspace.another-name", c(lib.read_lockspace, a.at(0), b"other"))
    step("write-lockspace.no-flags", c(lib.write_lockspace, b"plain", a.at(34), 0))
    step("read-lockspace.no-flags", c(lib.read_lockspace, a.at(34)))

    step("read-resource.never-written", c(sanlock.read_resource, *a.at(1)))
    step("read-resource.of-a-lockspace", c(sanlock.read_resource, *a.at(0)))
    step("read-resource.missing", c(sanlock.read_resource, a.path + ".missing"))
    step("read-resource.beyond-end", c(sanlock.read_resource, *a.at(64)))
    step("write-resource", c(sanlock.write_resource, *a.res(1)))
    for n in range(2, 16):
        c(sanlock.write_resource, *a.res(n))
    step("write-resource.missing", c(sanlock.write_resource, LS, b"x", [(a.path + ".missing", 0)]))
    step("write-resource.no-disks", c(sanlock.write_resource, LS, b"x", []))
    step("write-resource.align-2M-sector-512", c(sanlock.write_resource, LS, b"x", [a.at(40)], align=2 * MIB))
    step("write-resource.sector-4096", c(sanlock.write_resource, LS, b"r48", [a.at(48)], align=8 * MIB, sector=4096))
    step("write-resource.long-name", c(sanlock.write_resource, LS, b"n" * 60, [a.at(41)]))
    step("read-resource", c(sanlock.read_resource, *a.at(1)))
    step("read-resource.as-4096", c(sanlock.read_resource, *a.at(1), align=8 * MIB, sector=4096))
    step("read-resource.4096-as-512", c(sanlock.read_resource, *a.at(48)))
    step("read-resource.long-name", c(sanlock.read_resource, *a.at(41)))
    step("read-resource.flags", c(lib.read_resource, lib.resource(b"", b"", [a.at(1)])))
    step("read-resource.4096.flags", c(lib.read_resource, lib.resource(b"", b"", [a.at(48)])))
    step("read-resource.names", c(lib.read_resource, lib.resource(LS, b"r1", [a.at(1)])))
    step("read-resource.another-name", c(lib.read_resource, lib.resource(LS, b"other", [a.at(1)])))
    step("read-resource.another-lockspace", c(lib.read_resource, lib.resource(b"other", b"r1", [a.at(1)])))
    step("read-resource.no-disks", c(lib.read_resource, lib.resource(LS, b"r1")))
    step("write-resource.clear", c(sanlock.write_resource, *a.res(15), clear=True))
    step("read-resource.cleared", c(sanlock.read_resource, *a.at(15)))
    step("read-lockspace.of-a-resource", c(sanlock.read_lockspace, *a.at(1)))
    step("owners.free", c(sanlock.read_resource_owners, *a.res(1)))
    step("owners.never-written", c(sanlock.read_resource_owners, LS, b"x", [a.at(42)]))
    step("owners.another-name", c(sanlock.read_resource_owners, LS, b"other", [a.at(1)]))
    step("owners.as-4096", c(sanlock.read_resource_owners, *a.res(1), align=8 * MIB, sector=4096))
    step("owners.missing", c(sanlock.read_resource_owners, LS, b"x", [(a.path + ".missing", 0)]))


def lockspaces(c: Client, a: Areas) -> None:
    """Join lockspaces as host 1."""
    step("get-lockspaces.none", c(sanlock.get_lockspaces))
    step("inq-lockspace.none", c(sanlock.inq_lockspace, LS, 1, *a.at(0)))
    step("get-hosts.no-lockspace", c(sanlock.get_hosts, LS))
    step("set-config.no-lockspace", c(lib.set_config, LS, lib.CONFIG_USED))
    step("rem-lockspace.none", c(sanlock.rem_lockspace, LS, 1, *a.at(0)))
    step("acquire.no-lockspace", c(sanlock.acquire, *a.res(1), slkfd=FD))
    step("add-lockspace.missing", c(sanlock.add_lockspace, LS, 1, a.path + ".missing", 0, IO_TIMEOUT))
    step("add-lockspace.another-name", c(sanlock.add_lockspace, b"other", 1, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.host-0", c(sanlock.add_lockspace, LS, 0, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.host-2001", c(sanlock.add_lockspace, LS, 2001, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.no-name", c(sanlock.add_lockspace, b"", 1, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.resource", c(sanlock.add_lockspace, LS, 1, *a.at(1), IO_TIMEOUT))
    step("add-lockspace", c(sanlock.add_lockspace, LS, 1, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.again", c(sanlock.add_lockspace, LS, 1, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.another-id", c(sanlock.add_lockspace, LS, 2, *a.at(0), IO_TIMEOUT))
    step("add-lockspace.same-name-elsewhere", c(sanlock.add_lockspace, LS, 1, *a.at(33), IO_TIMEOUT))
    step("add-lockspace.same-place-another-name", c(sanlock.add_lockspace, b"other", 1, *a.at(0), IO_TIMEOUT))
    step("inq-lockspace", c(sanlock.inq_lockspace, LS, 1, *a.at(0)))
    step("inq-lockspace.another-id", c(sanlock.inq_lockspace, LS, 2, *a.at(0)))
    step("inq-lockspace.id-0", c(sanlock.inq_lockspace, LS, 0, *a.at(0)))
    step("inq-lockspace.another-place", c(sanlock.inq_lockspace, LS, 1, *a.at(33)))
    step("get-lockspaces", listed(c))
    listing = until(lambda: c(sanlock.get_hosts, LS), lambda r: r != "EAGAIN")
    step("get-hosts", hosts(listing))
    step("get-hosts.one", hosts(c(sanlock.get_hosts, LS, 1)))
    step("get-hosts.free-id", hosts(c(sanlock.get_hosts, LS, 7)))
    step("get-hosts.id-too-large", hosts(c(sanlock.get_hosts, LS, 2001)))
    step("get-hosts.another-lockspace", c(sanlock.get_hosts, b"other"))
    step("read-lockspace.joined", c(lib.read_lockspace, a.at(0), LS, 1))
    step("set-config.used", c(lib.set_config, LS, lib.CONFIG_USED))
    step("set-config.unused", c(lib.set_config, LS, lib.CONFIG_UNUSED))
    step("set-config.unknown", c(lib.set_config, LS, 16))

    step("write-lockspace.second", c(sanlock.write_lockspace, b"ls2", *a.at(30), 0, IO_TIMEOUT))
    step("add-lockspace.async", c(sanlock.add_lockspace, b"ls2", 5, *a.at(30), IO_TIMEOUT, wait=False))
    step("inq-lockspace.wait", c(sanlock.inq_lockspace, b"ls2", 5, *a.at(30), wait=True))
    step("get-lockspaces.two", listed(c))
    step("rem-lockspace.another-id", c(sanlock.rem_lockspace, b"ls2", 4, *a.at(30)))
    step("rem-lockspace.async", c(sanlock.rem_lockspace, b"ls2", 5, *a.at(30), wait=False))
    step("inq-lockspace.removed", until(lambda: c(sanlock.inq_lockspace, b"ls2", 5, *a.at(30)), lambda r: r is False))
    step("get-lockspaces.one", listed(c))


def listed(c: Client) -> Any:
    """Return get_lockspaces in the order of the names."""
    result = c(sanlock.get_lockspaces)
    return sorted(result, key=lambda each: str(each["lockspace"])) if isinstance(result, list) else result


def resources(c: Client, a: Areas) -> None:
    """Acquire and release by several processes of a host."""
    d, plain = Client(1), Client(1, registered=False)
    step("acquire.names-differ", c(sanlock.acquire, LS, b"other", [a.at(1)], slkfd=FD))
    step("acquire.lockspace-differs", c(sanlock.acquire, b"other", b"r1", [a.at(1)], slkfd=FD))
    step("acquire.never-written", c(sanlock.acquire, LS, b"x", [a.at(42)], slkfd=FD))
    step("acquire.cleared", c(sanlock.acquire, *a.res(15), slkfd=FD))
    step("acquire.missing", c(sanlock.acquire, LS, b"x", [(a.path + ".missing", 0)], slkfd=FD))
    step("acquire.beyond-end", c(sanlock.acquire, LS, b"x", [a.at(64)], slkfd=FD))
    step("acquire.of-a-lockspace", c(sanlock.acquire, LS, b"x", [a.at(0)], slkfd=FD))
    step("acquire.no-disks", c(sanlock.acquire, LS, b"r1", [], slkfd=FD))
    step("acquire.neither-socket-nor-pid", c(sanlock.acquire, *a.res(1)))
    step("acquire.pid-not-registered", c(sanlock.acquire, *a.res(1), pid=plain.pid))
    step("acquire.own-pid-not-registered", plain(sanlock.acquire, *a.res(1), pid=plain.pid))

    step("inquire.nothing", c(sanlock.inquire, slkfd=FD))
    step("acquire", c(sanlock.acquire, *a.res(1), slkfd=FD))
    step("inquire", c(sanlock.inquire, slkfd=FD))
    step("inquire.text", c(lib.inquire, FD, -1))
    step("inquire.by-pid", plain(sanlock.inquire, pid=c.pid))
    step("inquire.pid-not-registered", plain(sanlock.inquire, pid=plain.pid))
    step("inquire.another-process", d(sanlock.inquire, slkfd=FD))
    step("read-resource.held", c(sanlock.read_resource, *a.at(1)))
    step("owners.held", hosts(c(sanlock.read_resource_owners, *a.res(1))))
    step("acquire.again", c(sanlock.acquire, *a.res(1), slkfd=FD))
    step("acquire.again-shared", c(sanlock.acquire, *a.res(1), slkfd=FD, shared=True))
    step("acquire.held-by-another-process", d(sanlock.acquire, *a.res(1), slkfd=FD))
    step("acquire.shared-held-by-another-process", d(sanlock.acquire, *a.res(1), slkfd=FD, shared=True))
    step("release.not-held", d(sanlock.release, *a.res(1), slkfd=FD))
    step("release.another-resource", c(sanlock.release, *a.res(2), slkfd=FD))
    step("release", c(sanlock.release, *a.res(1), slkfd=FD))
    step("release.again", c(sanlock.release, *a.res(1), slkfd=FD))
    step("inquire.released", c(sanlock.inquire, slkfd=FD))
    step("owners.released", hosts(c(sanlock.read_resource_owners, *a.res(1))))
    step("read-resource.released", c(sanlock.read_resource, *a.at(1)))
    step("acquire.another-process", d(sanlock.acquire, *a.res(1), slkfd=FD))
    step("read-resource.held-again", c(sanlock.read_resource, *a.at(1)))
    step("release.by-pid", c(sanlock.release, *a.res(1), pid=d.pid))
    step("release.by-pid-again", c(sanlock.release, *a.res(1), pid=d.pid))
    step("release.pid-not-registered", c(sanlock.release, *a.res(1), pid=plain.pid))
    step("acquire.for-another-pid", plain(sanlock.acquire, *a.res(1), pid=d.pid))
    step("inquire.acquired-by-another", d(sanlock.inquire, slkfd=FD))
    step("acquire.version-differs", c(sanlock.acquire, *a.res(2), slkfd=FD, version=7))
    step("acquire.version-0", c(sanlock.acquire, *a.res(2), slkfd=FD, version=0))
    step("acquire.version-0.inquire", c(sanlock.inquire, slkfd=FD))
    c(lib.release, FD, -1, lib.REL_ALL, [])
    c(sanlock.acquire, *a.res(2), slkfd=FD)
    last = c(sanlock.inquire, slkfd=FD)[0]
    c(sanlock.release, *a.res(2), slkfd=FD)
    step("acquire.version-last", c(sanlock.acquire, *a.res(2), slkfd=FD, version=last["version"]))
    step("acquire.version-last.inquire", c(sanlock.inquire, slkfd=FD))
    c(lib.release, FD, -1, lib.REL_ALL, [])
    step("acquire.version-old", c(sanlock.acquire, *a.res(2), slkfd=FD, version=last["version"]))
    c(sanlock.acquire, *a.res(2), slkfd=FD)

    three = [a.lib(2), a.lib(3), a.lib(4)]
    step("acquire.several-one-held", d(lib.acquire, FD, -1, 0, three))
    step("inquire.several-one-held", d(sanlock.inquire, slkfd=FD))
    step("acquire.several", d(lib.acquire, FD, -1, 0, three[1:]))
    step("inquire.several", d(lib.inquire, FD, -1))
    step("acquire.nine", d(lib.acquire, FD, -1, 0, [a.lib(5)] * 9))
    step("acquire.twice-in-one-call", d(lib.acquire, FD, -1, 0, [a.lib(5)] * 2))
    step("acquire.five-disks", d(lib.acquire, FD, -1, 0, [lib.resource(LS, b"r5", [a.at(5)] * 5)]))
    step("release.several-one-not-held", d(lib.release, FD, -1, 0, three))
    step("inquire.released-several", d(lib.inquire, FD, -1))
    step("release.all", d(lib.release, FD, -1, lib.REL_ALL, []))
    step("inquire.released-all", d(lib.inquire, FD, -1))
    step("release.all-of-nothing", d(lib.release, FD, -1, lib.REL_ALL, []))
    step("release.all-of-another-pid", d(lib.release, -1, c.pid, lib.REL_ALL, []))

    d(sanlock.acquire, *a.res(9), slkfd=FD)
    step("write-resource.held", c(sanlock.write_resource, *a.res(9)))
    step("write-resource.held.read", c(sanlock.read_resource, *a.at(9)))
    step("write-resource.held.acquire", c(sanlock.acquire, *a.res(9), slkfd=FD))
    step("write-resource.held.release", d(sanlock.release, *a.res(9), slkfd=FD))
    step("write-resource.held.released", d(sanlock.acquire, *a.res(9), slkfd=FD))
    d(sanlock.release, *a.res(9), slkfd=FD)
    step("acquire.4096", c(sanlock.acquire, LS, b"r48", [a.at(48)], slkfd=FD))
    step("release.4096", c(sanlock.release, LS, b"r48", [a.at(48)], slkfd=FD))
    for each in (d, plain):
        each.kill()


def shared(c: Client, a: Areas) -> None:
    """Hold a resource shared by several processes of a host."""
    d, e = Client(1), Client(1)
    step("shared", c(sanlock.acquire, *a.res(6), slkfd=FD, shared=True))
    step("shared.second-process", d(sanlock.acquire, *a.res(6), slkfd=FD, shared=True))
    step("shared.twice", d(sanlock.acquire, *a.res(6), slkfd=FD, shared=True))
    step("shared.inquire", c(sanlock.inquire, slkfd=FD))
    step("shared.inquire.text", c(lib.inquire, FD, -1))
    step("shared.inquire.twice", d(lib.inquire, FD, -1))
    step("shared.owners", hosts(c(sanlock.read_resource_owners, *a.res(6))))
    step("shared.read-resource", c(sanlock.read_resource, *a.at(6)))
    step("shared.exclusive", e(sanlock.acquire, *a.res(6), slkfd=FD))
    step("shared.release", c(sanlock.release, *a.res(6), slkfd=FD))
    step("shared.exclusive-after-one-release", e(sanlock.acquire, *a.res(6), slkfd=FD))
    step("shared.release.second", d(sanlock.release, *a.res(6), slkfd=FD))
    step("shared.release.third", d(sanlock.release, *a.res(6), slkfd=FD))
    step("shared.release.fourth", d(sanlock.release, *a.res(6), slkfd=FD))
    step("shared.owners.released", hosts(c(sanlock.read_resource_owners, *a.res(6))))
    step("shared.exclusive-after-all", e(sanlock.acquire, *a.res(6), slkfd=FD))
    step("shared.read-resource.exclusive", c(sanlock.read_resource, *a.at(6)))
    e(sanlock.release, *a.res(6), slkfd=FD)

    step("convert.not-held", c(lib.convert, FD, -1, 0, a.lib(6)))
    c(sanlock.acquire, *a.res(6), slkfd=FD)
    step("convert.exclusive-to-exclusive", c(lib.convert, FD, -1, 0, a.lib(6)))
    step("convert.to-shared", c(lib.convert, FD, -1, 0, a.lib(6, lib.RES_SHARED)))
    step("convert.to-shared.inquire", c(lib.inquire, FD, -1))
    step("convert.shared-to-shared", c(lib.convert, FD, -1, 0, a.lib(6, lib.RES_SHARED)))
    step("convert.to-shared.second-process", d(sanlock.acquire, *a.res(6), slkfd=FD, shared=True))
    step("convert.to-exclusive-with-another-process", c(lib.convert, FD, -1, 0, a.lib(6)))
    step("convert.to-exclusive-with-another-process.inquire", c(lib.inquire, FD, -1))
    step("convert.to-exclusive-with-another-process.other", d(lib.inquire, FD, -1))
    step("convert.release-other", d(lib.release, FD, -1, lib.REL_ALL, []))
    step("convert.to-exclusive", c(lib.convert, FD, -1, 0, a.lib(6)))
    step("convert.to-exclusive.inquire", c(lib.inquire, FD, -1))
    step("convert.to-exclusive.owners", hosts(c(sanlock.read_resource_owners, *a.res(6))))
    step("convert.by-pid", d(lib.convert, -1, c.pid, 0, a.lib(6, lib.RES_SHARED)))
    step("convert.release", c(sanlock.release, *a.res(6), slkfd=FD))
    for each in (d, e):
        each.kill()


def values(c: Client, a: Areas) -> None:
    """Read and write lock value blocks."""
    d = Client(1)
    step("lvb.set-not-held", c(sanlock.set_lvb, *a.res(7), b"x"))
    step("lvb.get-not-held", c(sanlock.get_lvb, *a.res(7), 8))
    c(sanlock.acquire, *a.res(7), slkfd=FD)
    step("lvb.set-without-the-flag", c(sanlock.set_lvb, *a.res(7), b"x"))
    step("lvb.get-without-the-flag", c(sanlock.get_lvb, *a.res(7), 8))
    c(sanlock.release, *a.res(7), slkfd=FD)
    step("lvb.acquire", c(sanlock.acquire, *a.res(7), slkfd=FD, lvb=True))
    step("lvb.get-never-set", c(sanlock.get_lvb, *a.res(7), 16))
    step("lvb.set", c(sanlock.set_lvb, *a.res(7), b"sixteen bytes..."))
    step("lvb.get", c(sanlock.get_lvb, *a.res(7), 16))
    step("lvb.get-short", c(sanlock.get_lvb, *a.res(7), 3))
    step("lvb.get-long", c(sanlock.get_lvb, *a.res(7), 32))
    step("lvb.get-by-libsanlock", c(lib.get_lvb, a.lib(7), 24))
    step("lvb.set-shorter", c(sanlock.set_lvb, *a.res(7), b"SIX"))
    step("lvb.get-set-shorter", c(sanlock.get_lvb, *a.res(7), 16))
    step("lvb.set-empty", c(sanlock.set_lvb, *a.res(7), b""))
    step("lvb.get-0", c(sanlock.get_lvb, *a.res(7), 0))
    step("lvb.get-4097", c(sanlock.get_lvb, *a.res(7), 4097))
    step("lvb.set-by-another-process", d(sanlock.set_lvb, *a.res(7), b"other"))
    step("lvb.get-by-another-process", d(sanlock.get_lvb, *a.res(7), 16))
    step("lvb.set-513", c(sanlock.set_lvb, *a.res(7), b"b" * 513))
    step("lvb.set-4097", c(sanlock.set_lvb, *a.res(7), b"b" * 4097))
    step("lvb.get-after-too-long", c(sanlock.get_lvb, *a.res(7), 16))
    step("lvb.set-512", c(sanlock.set_lvb, *a.res(7), b"s" * 512))
    step("lvb.get-512", len(c(sanlock.get_lvb, *a.res(7), 512).strip(b"\0")))
    step("lvb.get-4096", len(c(sanlock.get_lvb, *a.res(7), 4096).strip(b"\0")))
    step("lvb.set-padded", c(sanlock.set_lvb, *a.res(7), b"p" * 248 + bytes(264)))
    step("lvb.get-padded", len(c(sanlock.get_lvb, *a.res(7), 512).strip(b"\0")))
    step("lvb.release", c(sanlock.release, *a.res(7), slkfd=FD))
    step("lvb.get-released", c(sanlock.get_lvb, *a.res(7), 16))
    step("lvb.acquire-again", d(sanlock.acquire, *a.res(7), slkfd=FD, lvb=True))
    step("lvb.get-again", len(d(sanlock.get_lvb, *a.res(7), 512).strip(b"\0")))
    d(sanlock.set_lvb, *a.res(7), b"kept by a killed process")
    d.kill()
    d = Client(1)
    step("lvb.after-kill", until(lambda: d(sanlock.acquire, *a.res(7), slkfd=FD, lvb=True, shared=True), lambda r: r is None))
    step("lvb.get-after-kill", d(sanlock.get_lvb, *a.res(7), 24))
    step("lvb.set-shared", d(sanlock.set_lvb, *a.res(7), b"set by a reader"))
    step("lvb.get-shared", d(sanlock.get_lvb, *a.res(7), 24))
    d(sanlock.release, *a.res(7), slkfd=FD)
    step("lvb.second-reader", c(sanlock.acquire, *a.res(7), slkfd=FD, lvb=True))
    step("lvb.get-after-shared", c(sanlock.get_lvb, *a.res(7), 24))
    step("lvb.convert", c(lib.convert, FD, -1, 0, a.lib(7, lib.RES_SHARED)))
    step("lvb.get-converted", c(sanlock.get_lvb, *a.res(7), 24))
    step("lvb.set-converted", c(sanlock.set_lvb, *a.res(7), b"set while shared"))
    step("lvb.convert-back", c(lib.convert, FD, -1, 0, a.lib(7)))
    step("lvb.set-exclusive-again", c(sanlock.set_lvb, *a.res(7), b"set while exclusive"))
    step("lvb.convert-again", c(lib.convert, FD, -1, 0, a.lib(7, lib.RES_SHARED)))
    c(sanlock.release, *a.res(7), slkfd=FD)
    d(sanlock.acquire, *a.res(7), slkfd=FD, lvb=True)
    step("lvb.get-after-conversions", d(sanlock.get_lvb, *a.res(7), 24))
    d(sanlock.release, *a.res(7), slkfd=FD)
    step("lvb.acquire-without", d(sanlock.acquire, *a.res(7), slkfd=FD))
    d(sanlock.release, *a.res(7), slkfd=FD)
    c(sanlock.acquire, *a.res(7), slkfd=FD, lvb=True)
    step("lvb.kept-by-a-hold-without", c(sanlock.get_lvb, *a.res(7), 24))
    c(sanlock.release, *a.res(7), slkfd=FD)
    d.kill()


def names(c: Client, a: Areas) -> None:
    """Use names and paths that are not words."""
    for name, text in [("slash", b"a/b"), ("space", b"a b"), ("percent", b"a%2fb"), ("colon", b"a:b"), ("dots", b".."),
                       ("utf-8", "\u00e4".encode()), ("byte", b"\xff"), ("newline", b"a\nb"), ("longest", b"n" * 48)]:
        res = (LS, text, [a.at(16)])
        step(f"name.{name}.write-resource", c(sanlock.write_resource, *res))
        step(f"name.{name}.acquire", c(sanlock.acquire, *res, slkfd=FD))
        step(f"name.{name}.inquire", c(lib.inquire, FD, -1))
        step(f"name.{name}.acquire-again", c(sanlock.acquire, *res, slkfd=FD))
        step(f"name.{name}.release", c(sanlock.release, *res, slkfd=FD))
    link = os.path.join(os.path.dirname(a.path), "a: b\\")
    os.symlink(a.path, link)
    res = (LS, b"r14", [(link, 14 * MIB)])
    step("path.acquire", c(sanlock.acquire, *res, slkfd=FD))
    step("path.inquire", c(lib.inquire, FD, -1))
    step("path.inquire.parsed", c(sanlock.inquire, slkfd=FD))
    step("path.acquire-by-another", c(sanlock.acquire, *a.res(14), slkfd=FD))
    step("path.release", c(sanlock.release, *res, slkfd=FD))
