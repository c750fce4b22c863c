"""Acquires and releases a free resource by libsanlock, and prints the nanoseconds of each call.

The time of ctypes, a few microseconds, is in each call, whichever daemon answers.
"""

from __future__ import annotations

import argparse
import time

import libsanlock as lib
import sanlock


def main() -> None:
    """Print a line for each turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--join", action="store_true", help="write the lockspace and the resource, and join")
    parser.add_argument("--offset", type=int, default=0, help="where the two areas of 1 MiB begin")
    parser.add_argument("areas", help="a file or device")
    parser.add_argument("turns", type=int)
    args = parser.parse_args()
    place = [(args.areas, args.offset + (1 << 20))]
    if args.join:
        sanlock.write_lockspace(b"bench", args.areas, args.offset, 0, 1)
        sanlock.write_resource(b"bench", b"r", place)
        sanlock.add_lockspace(b"bench", 1, args.areas, args.offset, 1)
    fd, r = sanlock.register(), lib.resource(b"bench", b"r", place)
    for _ in range(args.turns):
        begun = time.monotonic_ns()
        acquired = lib.acquire(fd, -1, 0, [r])
        held = time.monotonic_ns()
        released = lib.release(fd, -1, 0, [r])
        done = time.monotonic_ns()
        if acquired or released:
            raise SystemExit(f"acquire {lib.name_of(acquired)}, release {lib.name_of(released)}")
        print(held - begun, done - held)


main()
