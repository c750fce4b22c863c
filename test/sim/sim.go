// Package sim runs whole lockspaces in virtual time: several hosts made of the real code of daemon,
// daemon/lease and bakery, on a simulated disk and clock, under faults. One seed is one run, which
// is reproducible.
//
// It knows what a lockspace promises and which faults can occur; it never knows how the promises
// are kept. Time is that of testing/synctest: it passes when all goroutines wait. An overlay
// (directory overlay) removes everything else from the runtime that could make two runs of a seed
// differ, so test/sim/run runs this.
//
// Begin with [run] in world.go. disk.go and path.go are a disk and a host's path to it, members.go
// is a lockspace on several, machine.go the hosts, client.go their clients, session.go how these
// outlive bakeryd, faults.go, memberfaults.go and standingfaults.go the faults, replace.go the
// replacement of a member disk. rules.go has the
// checks, with each rule's name.
//
// # Rules
//
//   - EXCLUSION: no conflicting holds at once. A hold ends when its holder releases it or
//     dies, or with its host's lease: L after the start of the last renewal that was
//     acknowledged, as seen at the disk.
//   - DEADLINE: nothing is granted on a lease that is over.
//   - TOKEN: an exclusive grant's token is greater than those of all grants before.
//   - SURE: a host that was fenced and declared dead is granted no lock.
//   - ORDER: a host that has finished its doorway before another began is not overtaken.
//   - BOUND: while a host waits that has finished its doorway, another one serves a bounded
//     number of its own clients from one ticket.
//   - WORD: the holder knows that its lease is lost when another is granted.
//   - VERDICT: no host passes the slot of another before a verdict on it is on the disk.
//   - WRITER: only its host writes a sector, in an incarnation that it claimed itself, and
//     never while a write of it is in flight.
//   - SINGLE: at most one incarnation of a host id is live at any time.
//   - VALUE: the value read under a lock is the last one written.
//   - FENCED: a resource that checks tokens loses no update.
//   - HISTORY: the calls and answers of each lock are those of a lock (porcupine).
//   - IDENTITY: no host uses a disk that has forgotten what it had.
//   - KEPT: on several disks a host that has a majority of them keeps its lease.
//   - RESTART: a client that comes back to bakeryd within the lease still has its hold.
//   - PROGRESS: after all faults every host gets every lock; during one that stays, within a bound.
package sim
