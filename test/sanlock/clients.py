"""Steps that end or disturb clients: orphans, processes that are killed, garbage, status."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
from typing import List

import libsanlock as lib
import sanlock
from onehost import LS, Areas
from process import FD, Client, directory, hosts, step, until


def orphans(c: Client, a: Areas) -> None:
    """Leave persistent holds, and take and release them."""
    d = Client(1)
    keep, keep_shared = a.lib(8, lib.RES_PERSISTENT), a.lib(10, lib.RES_PERSISTENT | lib.RES_SHARED)
    step("orphan.only-without-orphan", d(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN_ONLY, [keep]))
    d(lib.release, FD, -1, lib.REL_ALL, [])
    step("orphan.only-with-lvb-without-orphan", d(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN_ONLY | lib.ACQUIRE_LVB, [keep]))
    step("orphan.or-new", d(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN | lib.ACQUIRE_LVB, [keep]))
    step("orphan.inquire", d(lib.inquire, FD, -1))
    step("orphan.shared", d(lib.acquire, FD, -1, 0, [keep_shared]))
    d(sanlock.set_lvb, *a.res(8), b"of an orphan")
    step("status.holders", status())
    d.kill()
    step("orphan.acquire", until(lambda: c(sanlock.acquire, *a.res(8), slkfd=FD), lambda r: r != "EEXIST"))
    step("orphan.acquire-shared", c(sanlock.acquire, *a.res(8), slkfd=FD, shared=True))
    step("orphan.shared.acquire-shared", c(sanlock.acquire, *a.res(10), slkfd=FD, shared=True))
    step("orphan.owners", hosts(c(sanlock.read_resource_owners, *a.res(8))))
    step("orphan.shared.owners", hosts(c(sanlock.read_resource_owners, *a.res(10))))
    step("orphan.get-lvb", c(sanlock.get_lvb, *a.res(8), 16))
    step("orphan.status", status())
    step("orphan.adopt-shared", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [a.lib(8, lib.RES_SHARED | lib.RES_PERSISTENT)]))
    step("orphan.shared.adopt-exclusive", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [a.lib(10, lib.RES_PERSISTENT)]))
    step("orphan.adopt", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN_ONLY | lib.ACQUIRE_LVB, [keep]))
    step("orphan.adopted.inquire", c(lib.inquire, FD, -1))
    step("orphan.adopted.get-lvb", c(sanlock.get_lvb, *a.res(8), 16))
    step("orphan.adopt-again", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [keep]))
    step("orphan.shared.adopt", c(lib.acquire, FD, -1, lib.ACQUIRE_ORPHAN, [keep_shared]))
    step("orphan.shared.adopted.inquire", c(lib.inquire, FD, -1))
    step("orphan.release", c(lib.release, FD, -1, lib.REL_ALL, []))
    step("orphan.released", c(sanlock.acquire, *a.res(8), slkfd=FD))
    step("orphan.shared.released", c(sanlock.acquire, *a.res(10), slkfd=FD))
    c(lib.release, FD, -1, lib.REL_ALL, [])

    d = Client(1)
    d(lib.acquire, FD, -1, 0, [keep, keep_shared])
    step("orphan.release-of-none", c(lib.release, -1, -1, lib.REL_ORPHAN, [a.lib(8)]))
    step("orphan.release-of-none-by-socket", c(lib.release, FD, -1, lib.REL_ORPHAN, [a.lib(8)]))
    d.kill()
    until(lambda: c(sanlock.acquire, *a.res(8), slkfd=FD), lambda r: r != "EEXIST")
    until(lambda: c(sanlock.acquire, *a.res(10), slkfd=FD), lambda r: r != "EEXIST")
    step("orphan.release-named", c(lib.release, FD, -1, lib.REL_ORPHAN, [a.lib(8)]))
    step("orphan.release-all", c(lib.release, FD, -1, lib.REL_ORPHAN, [lib.resource(LS, b"")]))
    step("orphan.release-all-again", c(lib.release, FD, -1, lib.REL_ORPHAN, [lib.resource(LS, b"")]))
    step("orphan.released-named", until(lambda: c(sanlock.acquire, *a.res(8), slkfd=FD), lambda r: r is None))
    step("orphan.released-all", until(lambda: c(sanlock.acquire, *a.res(10), slkfd=FD), lambda r: r is None))
    c(lib.release, FD, -1, lib.REL_ALL, [])


def renames(c: Client, a: Areas) -> None:
    """Release and rename in one call."""
    new = lib.resource(LS, b"renamed")
    step("rename.not-held", c(lib.release, FD, -1, lib.REL_RENAME, [a.lib(11), new]))
    c(sanlock.acquire, *a.res(11), slkfd=FD)
    step("rename", c(lib.release, FD, -1, lib.REL_RENAME, [a.lib(11), new]))
    step("rename.inquire", c(lib.inquire, FD, -1))
    step("rename.read-resource", c(sanlock.read_resource, *a.at(11)))
    step("rename.acquire-old-name", c(sanlock.acquire, *a.res(11), slkfd=FD))
    step("rename.acquire", c(sanlock.acquire, LS, b"renamed", [a.at(11)], slkfd=FD))
    step("rename.release", c(sanlock.release, LS, b"renamed", [a.at(11)], slkfd=FD))


def ends(c: Client, a: Areas) -> None:
    """End clients and connections that hold resources."""
    d = Client(1)
    d(sanlock.acquire, *a.res(12), slkfd=FD)
    step("end.held", c(sanlock.acquire, *a.res(12), slkfd=FD))
    d.kill()
    step("end.killed", until(lambda: c(sanlock.acquire, *a.res(12), slkfd=FD), lambda r: r is None))
    c(sanlock.release, *a.res(12), slkfd=FD)
    d = Client(1)
    d(sanlock.acquire, *a.res(12), slkfd=FD)
    d(os.close, FD)
    step("end.socket-closed", until(lambda: c(sanlock.acquire, *a.res(12), slkfd=FD), lambda r: r is None))
    step("end.socket-closed.pid", until(lambda: c(sanlock.inquire, pid=d.pid), lambda r: r == "ESRCH"))
    c(sanlock.release, *a.res(12), slkfd=FD)
    d.kill()

    d = Client(1)
    step("restrict.sigkill", d(lib.restrict, FD, lib.RESTRICT_SIGKILL))
    step("restrict.acquire", d(sanlock.acquire, *a.res(12), slkfd=FD))
    step("killpath", d(sanlock.killpath, "/bin/true", ["a", "b c"], slkfd=FD))
    step("killpath.too-long", d(sanlock.killpath, "/" + "x" * 128, [], slkfd=FD))
    step("killpath.relative", d(sanlock.killpath, "true", [], slkfd=FD))
    step("killpath.missing", d(sanlock.killpath, "/nonexistent", [], slkfd=FD))
    step("restrict.all", d(lib.restrict, FD, lib.RESTRICT_ALL))
    step("restrict.all.held", c(sanlock.acquire, *a.res(12), slkfd=FD))
    d.kill()
    step("restrict.killed", until(lambda: c(sanlock.acquire, *a.res(12), slkfd=FD), lambda r: r is None))
    c(sanlock.release, *a.res(12), slkfd=FD)


def wire(c: Client, a: Areas) -> None:
    """Send what libsanlock does not send, in a process without a registration."""
    d = Client(1, registered=False)
    body, register = bytes(56), lib.header(lib.REGISTER)
    for name, data, answers in [
        ("unknown-command", lib.header(99), 0),
        ("command-0", lib.header(0), 0),
        ("magic", lib.header(lib.VERSION, magic=1), 0),
        ("protocol", lib.header(lib.INQUIRE, version=0x00020000), 0),
        ("not-registered", lib.header(lib.INQUIRE, data2=-1), 1),
        ("acquire.not-registered", lib.header(lib.ACQUIRE, 32 + len(body), data2=-1) + body, 1),
        ("acquire.pid-of-none", lib.header(lib.ACQUIRE, 32 + len(body), data2=1 << 30) + body, 1),
        ("release.not-registered", lib.header(lib.RELEASE, data2=-1), 1),
        ("acquire.nothing", register + lib.header(lib.ACQUIRE, 32 + len(body), data2=-1) + body, 1),
        ("acquire.nine", register + lib.header(lib.ACQUIRE, data=9, data2=-1), 1),
        ("registered-twice", register * 2, 0),
    ]:
        step(f"wire.{name}", d(replies, data, answers))
    step("wire.resource-cut-off", d(cut_off, lib.header(lib.REGISTER) + lib.header(lib.ACQUIRE, 32 + 144, data=1, data2=-1) + b"x" * 20))
    step("wire.header-cut-off", d(cut_off, lib.header(lib.VERSION)[:10]))
    step("wire.text", d(cut_off, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    step("wire.survives", c(lib.version))
    step("wire.acquire", c(sanlock.acquire, *a.res(12), slkfd=FD))
    step("wire.release", c(sanlock.release, *a.res(12), slkfd=FD))
    d.kill()


def replies(data: bytes, answers: int) -> List[str]:
    """Send bytes, wait for answers, ask for the version, and return all answers."""
    s = lib.connect()
    out: List[str] = []
    s.sendall(data)
    while True:
        if len(out) == answers:
            with contextlib.suppress(BrokenPipeError):
                s.sendall(lib.header(lib.VERSION))
        h = lib.reply(s)
        if h and not (h[2] == lib.VERSION and h[7]):
            code, = struct.unpack("=i", struct.pack("=I", h[6]))
            out.append(f"command {h[2]} length {h[4]} data {lib.name_of(code)} data2 {h[7]}")
            continue
        s.close()
        return out + ["version" if h else "closed"]


def cut_off(data: bytes) -> str:
    """Send bytes and close the connection."""
    s = lib.connect()
    s.sendall(data)
    s.close()
    return "closed"


def status(host: int = 1) -> str:
    """Return the lines of sanlock client status, in one."""
    done = subprocess.run(["sanlock", "client", "status"], env=dict(os.environ, SANLOCK_RUN_DIR=directory(host)),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = [re.sub("^daemon .*", "daemon NAME", line.rstrip()) for line in done.stdout.splitlines()]
    return " / ".join(lines + [f"exit code {done.returncode}"])
