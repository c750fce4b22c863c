package show

// HostsHelp explains the table of bakeryctl hosts.
const HostsHelp = `Show the hosts of the lockspace, their state, and when they last renewed their
lease.

  live     renews its lease
  silent   has not renewed as expected; if it does not renew, it is declared dead
           and its locks pass to the waiters
  dead     was declared dead: its locks are free
  left     has left the lockspace, and has no locks; it joins again when its bakeryd
           is started. One line names these hosts, --all lists them
  joining  not live yet; it holds nothing. If there is no change for longer than two
           leases, its process has ended: evict says how to free the id

More words may follow the state: "forgotten" (dead, and its id free for another
machine), "asked to leave" (evicted while it renews), "unreadable" (its record on the
disk is damaged; the line shows what was read before).

SEEN is the time since the last renewal, rounded down, and for a silent host the time
until it is dead or fenced, rounded up. Its locks are released then. "being fenced"
is followed by the attempts that have failed, and when the next one begins.

WATCHDOG is the time within which the hardware watchdog resets the host if bakeryd
stops.

VERDICTS are what a host publishes about others: dead, wish (asked to leave), or
forgotten (dead, and its id free), and the id. It does so until they return.

Without --device bakeryd is asked. With --device the device is read, without
joining and without bakeryd; this does not show whether a host is silent.`
