"""Calls of libsanlock_client.so.1 that python3-sanlock does not have, and its result codes.

Each function returns what the library returns: 0 or a count, or a negative errno or SANLK code.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from typing import Any, List, Optional, Sequence, Tuple

RES_LVER, RES_SHARED, RES_PERSISTENT = 0x1, 0x4, 0x8
ACQUIRE_LVB, ACQUIRE_ORPHAN, ACQUIRE_ORPHAN_ONLY, ACQUIRE_OWNER_NOWAIT = 0x1, 0x2, 0x4, 0x8
REL_ALL, REL_RENAME, REL_ORPHAN = 0x1, 0x2, 0x4
RESTRICT_ALL, RESTRICT_SIGKILL, RESTRICT_SIGTERM = 0x1, 0x2, 0x4
CONFIG_USED, CONFIG_UNUSED, CONFIG_USED_BY_ORPHANS, CONFIG_UNUSED_BY_ORPHANS = 0x1, 0x2, 0x4, 0x8

NAMES = {
    -201: "SANLK_ERROR", -202: "SANLK_AIO_TIMEOUT", -203: "SANLK_WD_ERROR",
    -210: "SANLK_DBLOCK_READ", -211: "SANLK_DBLOCK_WRITE", -212: "SANLK_DBLOCK_LVER",
    -213: "SANLK_DBLOCK_MBAL", -214: "SANLK_DBLOCK_CHECKSUM",
    -220: "SANLK_LEADER_READ", -221: "SANLK_LEADER_WRITE", -222: "SANLK_LEADER_DIFF",
    -223: "SANLK_LEADER_MAGIC", -224: "SANLK_LEADER_VERSION", -225: "SANLK_LEADER_SECTORSIZE",
    -226: "SANLK_LEADER_LOCKSPACE", -227: "SANLK_LEADER_RESOURCE", -228: "SANLK_LEADER_NUMHOSTS",
    -229: "SANLK_LEADER_CHECKSUM", -230: "SANLK_ADDLS_SIZES", -231: "SANLK_ADDLS_INVALID_HOSTID",
    -240: "SANLK_ACQUIRE_LVER", -241: "SANLK_ACQUIRE_LOCKSPACE", -242: "SANLK_ACQUIRE_IDDISK",
    -243: "SANLK_ACQUIRE_IDLIVE", -244: "SANLK_ACQUIRE_OWNED", -245: "SANLK_ACQUIRE_OTHER",
    -246: "SANLK_ACQUIRE_SHRETRY", -247: "SANLK_ACQUIRE_OWNED_RETRY",
    -250: "SANLK_RELEASE_LVER", -251: "SANLK_RELEASE_OWNER",
    -260: "SANLK_RENEW_OWNER", -261: "SANLK_RENEW_DIFF", -262: "SANLK_HOSTID_BUSY",
}


def name_of(code: int) -> str:
    """Return the name of a result code, which is negative unless it is a count."""
    if code >= 0:
        return "OK" if code == 0 else f"OK {code}"
    return NAMES.get(code) or errno.errorcode.get(-code) or str(code)


class Disk(ctypes.Structure):
    """struct sanlk_disk."""

    _fields_ = [("path", ctypes.c_char * 1024), ("offset", ctypes.c_uint64),
                ("pad1", ctypes.c_uint32), ("pad2", ctypes.c_uint32)]


class Resource(ctypes.Structure):
    """struct sanlk_resource with room for five disks, one more than libsanlock allows."""

    _fields_ = [("lockspace", ctypes.c_char * 48), ("name", ctypes.c_char * 48),
                ("lver", ctypes.c_uint64), ("data64", ctypes.c_uint64),
                ("data32", ctypes.c_uint32), ("unused", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("num_disks", ctypes.c_uint32),
                ("disks", Disk * 5)]


class Lockspace(ctypes.Structure):
    """struct sanlk_lockspace."""

    _fields_ = [("name", ctypes.c_char * 48), ("host_id", ctypes.c_uint64),
                ("flags", ctypes.c_uint32), ("disk", Disk)]


Place = Tuple[str, int]  # a path and an offset in it

_library = ctypes.CDLL("libsanlock_client.so.1")


def resource(lockspace: bytes, name: bytes, places: Sequence[Place] = (), flags: int = 0, lver: int = 0) -> Resource:
    """Return a struct sanlk_resource."""
    r = Resource(lockspace, name, lver, 0, 0, 0, flags, len(places))
    for disk, (path, offset) in zip(r.disks, places):
        disk.path, disk.offset = os.fsencode(path), offset
    return r


def _array(resources: Sequence[Resource]) -> Any:
    return (ctypes.POINTER(Resource) * len(resources))(*[ctypes.pointer(r) for r in resources])


def acquire(sock: int, pid: int, flags: int, resources: Sequence[Resource]) -> int:
    """Acquire resources for a registered socket, or with sock -1 for a registered process."""
    return int(_library.sanlock_acquire(sock, pid, ctypes.c_uint32(flags), len(resources), _array(resources), None))


def release(sock: int, pid: int, flags: int, resources: Sequence[Resource]) -> int:
    """Release resources, rename one, or release orphans: as the flags say."""
    return int(_library.sanlock_release(sock, pid, ctypes.c_uint32(flags), len(resources), _array(resources)))


def convert(sock: int, pid: int, flags: int, r: Resource) -> int:
    """Convert a hold to the mode in the resource's flags."""
    return int(_library.sanlock_convert(sock, pid, ctypes.c_uint32(flags), ctypes.byref(r)))


def inquire(sock: int, pid: int) -> Tuple[int, int, Optional[bytes]]:
    """Return the result, the number of resources held and the text that describes them."""
    count, text = ctypes.c_int(), ctypes.c_char_p()
    result = _library.sanlock_inquire(sock, pid, 0, ctypes.byref(count), ctypes.byref(text))
    return int(result), count.value, text.value


def restrict(sock: int, flags: int) -> int:
    """Restrict what the daemon may do to the process, or all commands of its socket."""
    return int(_library.sanlock_restrict(sock, ctypes.c_uint32(flags)))


def killpath(sock: int, flags: int, path: bytes, args: bytes) -> int:
    """Name the program that the daemon runs when the lease of the lockspace is about to end."""
    return int(_library.sanlock_killpath(sock, ctypes.c_uint32(flags), path, args))


def set_config(lockspace: bytes, command: int) -> int:
    """Set or clear the lockspace's "used" or "used by orphans"."""
    return int(_library.sanlock_set_config(lockspace, 0, ctypes.c_uint32(command), None))


def version() -> Tuple[int, int, int]:
    """Return the result, the daemon's version and its protocol."""
    number, proto = ctypes.c_uint32(), ctypes.c_uint32()
    result = _library.sanlock_version(0, ctypes.byref(number), ctypes.byref(proto))
    return int(result), number.value, proto.value


def read_resource(r: Resource) -> Tuple[int, bytes, bytes, int, int]:
    """Return the result, and lockspace, name, version and flags as read from the disk."""
    result = int(_library.sanlock_read_resource(ctypes.byref(r), 0))
    return result, r.lockspace, r.name, r.lver, r.flags


def read_lockspace(place: Place, name: bytes = b"", host_id: int = 0, flags: int = 0) -> Tuple[int, bytes, int, int, int]:
    """Return the result, and name, host id, flags and io timeout as read from the disk."""
    ls, timeout = Lockspace(name, host_id, flags, Disk(os.fsencode(place[0]), place[1])), ctypes.c_uint32()
    result = int(_library.sanlock_read_lockspace(ctypes.byref(ls), 0, ctypes.byref(timeout)))
    return result, ls.name, ls.host_id, ls.flags, timeout.value


def get_lvb(r: Resource, size: int) -> Tuple[int, bytes]:
    """Return the result and the bytes that the library copied into a buffer of size bytes."""
    buffer = ctypes.create_string_buffer(b"\xff" * size, size)
    result = _library.sanlock_get_lvb(0, ctypes.byref(r), buffer, size)
    return int(result), buffer.raw


def write_lockspace(name: bytes, place: Place, flags: int) -> int:
    """Write a lockspace with these flags for sector and alignment."""
    ls = Lockspace(name, 0, flags, Disk(os.fsencode(place[0]), place[1]))
    return int(_library.sanlock_write_lockspace(ctypes.byref(ls), 0, 0, ctypes.c_uint32(2)))


MAGIC, PROTOCOL = 0x04282010, 1
REGISTER, INQUIRE, ACQUIRE, RELEASE, VERSION, GET_LVB = 1, 9, 7, 8, 28, 26


def header(command: int, length: int = 32, magic: int = MAGIC, version: int = PROTOCOL, flags: int = 0, data: int = 0,
           data2: int = 0) -> bytes:
    """Return a struct sm_header. The command goes to the daemon as it is."""
    return struct.pack("=8I", magic, version, command, flags, length, 0, data & 0xFFFFFFFF, data2 & 0xFFFFFFFF)


def connect() -> socket.socket:
    """Connect to the daemon without libsanlock."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(120)
    s.connect(os.path.join(os.environ["SANLOCK_RUN_DIR"], "sanlock.sock"))
    return s


def reply(s: socket.socket) -> List[int]:
    """Return the fields of the next header from the daemon; [] if it has closed the connection."""
    data = b""
    while len(data) < 32:
        try:
            part = s.recv(32 - len(data))
        except ConnectionResetError:
            return []
        if not part:
            return []
        data += part
    return list(struct.unpack("=8I", data))
