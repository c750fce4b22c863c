"""Calls python3-sanlock and libsanlock step by step, and prints a line for each step."""

from __future__ import annotations

import argparse
import os

import clients
import onehost
import process
import twohosts


def main() -> None:
    """Run the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", nargs=3, metavar="DIR", required=True, help="directories of the hosts' sanlock.sock")
    parser.add_argument("--areas", required=True, metavar="FILE", help="a file that is created for the lockspaces and resources")
    parser.add_argument("--lock-disk", required=True, metavar="FILE", help="the file that the lease of host 1 depends on; it is truncated")
    parser.add_argument("--kill", required=True, type=int, metavar="PID", help="the daemon of host 2, which is killed")
    args = parser.parse_args()
    process.use(dict(enumerate(args.hosts, start=1)), os.path.dirname(args.areas))
    c, a = process.Client(1), onehost.Areas(args.areas)
    onehost.areas_without_a_lockspace(c, a)
    onehost.lockspaces(c, a)
    onehost.resources(c, a)
    onehost.shared(c, a)
    onehost.values(c, a)
    onehost.names(c, a)
    clients.orphans(c, a)
    clients.renames(c, a)
    clients.ends(c, a)
    clients.wire(c, a)
    d = twohosts.join(c, a)
    twohosts.modes(c, d, a)
    twohosts.rejoin(c, d, a)
    waits = [twohosts.id_in_use(c, a), twohosts.dead_host(c, d, a, args.kill)]
    twohosts.removal(c, a)
    for wait in waits:
        wait()
    twohosts.lease_lost(c, a, args.lock_disk)


main()
