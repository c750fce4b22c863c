// Package sim runs whole lockspaces in virtual time: several hosts made of the
// real code of daemon, daemon/lease and bakery, on a simulated disk and clock,
// under faults. One seed is one run, which is the same each time.
//
// It knows what a lockspace promises and what may befall it; it never knows how
// the promises are kept. Time is that of testing/synctest: it passes when all
// goroutines wait. What else could make two runs of a seed differ is taken from
// the runtime by an overlay (folder overlay), so this is run by test/sim/run.
//
// Begin with [run] in world.go. disk.go and path.go are the disk and a host's way
// to it, machine.go the hosts, client.go what they do, session.go how that outlives
// bakeryd, faults.go and standingfaults.go what befalls them; rules.go holds what is checked, with each rule's name.
//
// # Rules
//
//   - EXCLUSION: no conflicting holds at once. A hold ends when its holder lets
//     go or is dead, or with its host's lease: L after the begin of the last
//     renewal that was acknowledged, as seen at the disk.
//   - DEADLINE: nothing is granted on a lease that is over.
//   - TOKEN: an exclusive grant's token is greater than those of all grants before.
//   - ORDER: who has finished its doorway before another began is not overtaken.
//   - WORD: the holder knows that its lease is lost when another is granted.
//   - VERDICT: nobody goes past the slot of a host before a verdict on it is on the disk.
//   - WRITER: a sector is written by its host only, in an incarnation that it
//     claimed itself, and never while a write of it is under way.
//   - SINGLE: of one host id, one incarnation at most is live at any time.
//   - VALUE: the value read under a lock is the one that was written last.
//   - FENCED: what a lock protects and who checks tokens loses nothing.
//   - HISTORY: the calls and answers of each lock are those of a lock (porcupine).
//   - RESTART: a client that comes back to bakeryd within the lease has its hold still.
//   - PROGRESS: when all faults are over, every host gets every lock; while one stays, within a bound.
package sim
