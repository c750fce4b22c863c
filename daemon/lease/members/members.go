// Package members makes one host table of the copies that lie on several member disks. It knows
// versions, majorities and when copies change. It never knows IO, a clock, or what a record means
// for a lease. Begin with [Table.Read].
//
// A host record has a version, which only grows. A write goes to all members and is complete when a
// majority has acknowledged it. A read takes the newest of the copies of a majority, which includes
// every write that was complete before it began. But if a writer dies half-way, its version stays on
// a minority until a next write. Reads then return it, or the version before, in any order:
//
//	host j                        observer                    copies of j's record
//	                                                          7    7    7
//	writes 8: on member 0, dies                               8    7    7
//	                              reads 0 and 1: 8
//	                              reads 1 and 2: 7
//	                              reads 0 and 2: 8
//
// # Rules
//
// These are the rules for that of package lease, beyond its invariants, which hold as with one disk. The
// driver writes in order (FIFO): one write of a record is under way on a member, then the newest
// follows, and none once the lease is over (LAST-CALL). f+1 of 2f+1 members are a majority.
//
//   - VERSIONS: a version is the generation of the host id, then the sequence. Every claim increases
//     the generation, so that its first write outranks what an earlier host has left on a member that
//     neither the claim nor its read reached.
//
//   - COUNT: a claim stands if f+1 of the members that had acknowledged it when it was complete still
//     show it. On one of them, each of two claims was either there before the other or overwritten by
//     it in time. A copy that lands later proves nothing:
//
//     A                           B                           copies of the record
//     writes: on 1 and 2
//     .                           writes: on 0 and 2,         B  A  B
//     .                           late on 1
//     on 0, acknowledged                                      A  A  B
//     looks at 0 and 1: live
//     .                           (lands on 1)                A  B  B
//     .                           looks at 1 and 2: live
//
//   - GREATEST-EVER: a version older than the greatest ever seen changes nothing. The read shows that
//     no later write was complete, so the record has stood still. Otherwise reads of 8 and 7 in turns
//     look like renewals.
//
//   - MISSED: a record is damaged if a majority of its copies is. If a host misses copies, others may have
//     a majority, among them the owner: for that host it is unreadable, and stays its owner's.
//
//   - PER-MEMBER: a record stands still while the same majority of copies does, from the time that the
//     newest version was first seen. Renewals count if one member shows them. A late copy of an earlier
//     host can hide a renewal on the only member that two majorities share:
//
//     A, on 0 and 1               C, on 1 and 2               copies
//     .                           reads 8                     8  8  8
//     renews                                                  9  9  8
//     .                           (a late copy lands)         9  z  8
//     .                           L + margin later: reads z, 8
//
//   - CO-SIGN: a verdict counts if f+1 copies of one record show it, or when this host has published it
//     too. The host that it names obeys it on any copy. A host that is not live takes no id by a verdict
//     on a minority:
//
//     D                           W, on 0 and 1               V, on 1 and 2
//     evicts V: on 0, dies
//     .                           reads it: V is dead
//     .                                                       reads no verdict: renews
//
//   - DROP: a verdict is dropped only when f+1 members show that its host has left or was replaced. If a
//     next claim was half-written, its host may read neither that nor, then, the verdict.
//
//   - LEFT-FIRST: a term is void before left goes to any member. Otherwise the next process reads the
//     live record on the others, and continues a lease that hosts have seen end.
//
//   - BEFORE-LIVE: a host goes live, or takes an id, only by a read in which no member of a majority lists
//     the members with a newer epoch than the host uses, and by a claim with that epoch. A change of the
//     list waits until every host that it reads as joining or live shows the new epoch. It reads them when
//     a majority has the new list:
//
//     A, with the list 1          D replaces member 0         members 1 and 2
//     .                           lists 2: 0 is vacant        2  2
//     .                           reads: no host
//     joins                                                   A is joining
//     (reads the lists: 1 is old)
//     live on 0 and 1             copies 2 to the new 0
//     .                           lists 3: reads of 0 and 2 miss A
//
//     An epoch is shown only when nothing of a disk that it does not list counts any more.
//
//   - NOTE-FIRST: a term has the read horizon and the epoch of the last write before that goes to any
//     member. A process that continues it with an older list would use a disk whose records other hosts
//     do not read any more. As to the horizon, with
//     three members the next process finds again what raised it. With five it may read neither:
//
//     A                           joiner 5, on 0 1 2          members
//     finds 4                                                 4 has host 4
//     writes: horizon 6, dies                                 0 has horizon 6
//     .                           reads 6: ready
//     next process reads 1 2 3: horizon 3
//
//   - TWICE: a joiner takes two changes of the record for a renewal, not one: a dead host leaves one
//     half-written. A process that resumes from a record does not take it for one on a majority.
package members

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// ErrMinority is the error of a record of which too few members returned a valid copy, although other
// hosts may read it: the copies that this host missed need not be damaged.
var ErrMinority = errors.New("too few member disks returned the record")

// ErrGenerations is returned when a host id was claimed so often that no claim can outrank the last one.
var ErrGenerations = errors.New("the host id has no generation left: choose another host id, or format the lockspace again")

// Copy is what one member returned for a host record.
type Copy struct {
	layout.HostRecord
	Read bool  // the member returned it in this read; if not, the other fields have no meaning
	Err  error // why it is unreadable
}

func (c *Copy) valid() bool { return c.Read && c.Err == nil }

// Sighting is what is known about one member's copy of a record.
type Sighting struct {
	Generation            uint32
	Sequence, Incarnation uint64
	State                 layout.HostState
	Since                 time.Duration // first time at which it was seen like that
	Base                  time.Duration // time of the request for the read from which steps are counted
	Steps                 int           // number of renewals since
}

// Table is what one host knows about the copies of a host table.
type Table struct {
	members   int
	Greatest  []Copy       // of each record, the greatest version ever seen
	Sightings [][]Sighting // of each record, the copies
}

// New returns the table of a lockspace on several members, or nil if there is one disk.
func New(hosts, members int) *Table {
	if members < 2 {
		return nil
	}
	t := &Table{members: members, Greatest: make([]Copy, hosts), Sightings: make([][]Sighting, hosts)}
	for i := range t.Sightings {
		t.Sightings[i] = make([]Sighting, members)
	}
	return t
}

// Clone returns a copy of the table.
func (t *Table) Clone() *Table {
	if t == nil {
		return nil
	}
	c := &Table{members: t.members, Greatest: slices.Clone(t.Greatest), Sightings: slices.Clone(t.Sightings)}
	for i := range c.Sightings {
		c.Sightings[i] = slices.Clone(c.Sightings[i])
	}
	return c
}

// Quorum returns the number of members that is a majority.
func (t *Table) Quorum() int {
	if t == nil {
		return 1
	}
	return t.members/2 + 1
}

// Read applies the copies of one record that a read returned, and returns the newest of them.
// Incarnations of own lose to others of their generation: two hosts that claim an id have the same,
// and each gives way to the other.
func (t *Table) Read(id int, copies []Copy, own []uint64, now, readAt, lease time.Duration) (Copy, error) {
	var top Copy
	var err error
	valid, damaged := 0, 0
	for k := range copies {
		c := &copies[k]
		if !c.valid() {
			if c.Read {
				damaged++
				err = cmp.Or(err, c.Err)
			}
			continue
		}
		t.Sightings[id-1][k].see(c, now, readAt, lease)
		if valid++; valid == 1 || compare(c, &top, own) > 0 {
			top = *c
		}
	}
	switch {
	case damaged >= t.Quorum():
		return Copy{}, err
	case valid < t.Quorum():
		return Copy{}, errors.Join(ErrMinority, err)
	}
	return top, nil
}

// Next returns the version of a claim over a record that was read. It is above that of every copy
// seen (VERSIONS), and of the last own record: a copy of an earlier claim may still be in flight. With
// one disk the generation is 0. It may return ErrGenerations.
func (t *Table) Next(id int, read, own layout.HostRecord) (generation uint32, sequence uint64, err error) {
	if t == nil {
		return 0, read.Sequence + 1, nil
	}
	generation, sequence = t.Greatest[id-1].Generation, read.Sequence
	for _, s := range t.Sightings[id-1] {
		generation = max(generation, s.Generation)
	}
	if generation == math.MaxUint32 {
		return 0, 0, fmt.Errorf("claim host id %d: %w", id, ErrGenerations)
	}
	if own.ID == id {
		sequence = max(sequence, own.Sequence)
	}
	return generation + 1, sequence + 1, nil
}

// Newest returns the greatest version of a record ever seen, now that c was read.
func (t *Table) Newest(id int, c Copy, own []uint64) Copy {
	g := &t.Greatest[id-1]
	if compare(&c, g, own) > 0 {
		*g = c
	}
	return *g
}

// compare orders versions. Two claims may have the same one: the incarnation makes the order the
// same for all hosts.
func compare(a, b *Copy, own []uint64) int {
	foreign := func(c *Copy) int {
		if slices.Contains(own, c.Incarnation) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(foreign(a), foreign(b)),
		cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Incarnation, b.Incarnation))
}

// see applies one copy. Steps are counted on each member: a second one shows that the first had
// returned there, because only one write is under way on a member. Steps on different members may
// both be late.
func (s *Sighting) see(c *Copy, now, readAt, lease time.Duration) {
	if c.Generation == s.Generation && c.Sequence == s.Sequence && c.Incarnation == s.Incarnation {
		return
	}
	s.Steps++
	renewed := c.Incarnation == s.Incarnation && c.Sequence > s.Sequence && c.State == layout.StateLive && s.State == layout.StateLive
	if !renewed || now-s.Base > lease {
		s.Base, s.Steps = readAt, 0
	}
	s.Generation, s.Sequence, s.Incarnation, s.State, s.Since = c.Generation, c.Sequence, c.Incarnation, c.State, now
}

// Still returns the time since which the same majority of copies, all of this read, has not changed.
func (t *Table) Still(id int, copies []Copy) time.Duration {
	var since []time.Duration
	for k := range copies {
		if copies[k].valid() {
			since = append(since, t.Sightings[id-1][k].Since)
		}
	}
	slices.Sort(since)
	return since[t.Quorum()-1]
}

// Steps returns the number of renewals of an incarnation that one member has shown.
func (t *Table) Steps(id int, incarnation uint64) (n int) {
	for _, s := range t.Sightings[id-1] {
		if s.Incarnation == incarnation {
			n = max(n, s.Steps)
		}
	}
	return n
}

// Most reports whether a majority of the copies of a record, as each was last seen, satisfies a
// condition. It is true if there is one disk.
func (t *Table) Most(id int, is func(Sighting) bool) bool {
	if t == nil {
		return true
	}
	n := 0
	for _, s := range t.Sightings[id-1] {
		if is(s) {
			n++
		}
	}
	return n >= t.Quorum()
}

// Verdicts calls f for each verdict in copies of one record, with the number of copies that agree. It
// skips those of an own incarnation.
func Verdicts(copies []Copy, own uint64, f func(name string, v layout.Verdict, votes int)) {
	for k := range copies {
		if c := &copies[k]; c.valid() && (own == 0 || c.Incarnation != own) {
			for _, v := range c.Verdicts {
				f(c.Name, v, votes(copies, v))
			}
		}
	}
}

// votes returns the number of copies with a verdict that says as much.
func votes(copies []Copy, v layout.Verdict) (n int) {
	for k := range copies {
		if copies[k].valid() && slices.ContainsFunc(copies[k].Verdicts, func(x layout.Verdict) bool {
			return x == v || x.Host == v.Host && x.Incarnation == v.Incarnation && x.Kind == layout.VerdictForgotten
		}) {
			n++
		}
	}
	return n
}

// Shown returns how many of the counted members show an incarnation, and of how many the copy was
// not read.
func Shown(copies []Copy, counted []int, incarnation uint64) (shown, unread int) {
	for _, k := range counted {
		switch c := &copies[k]; {
		case !c.valid():
			unread++
		case c.Incarnation == incarnation:
			shown++
		}
	}
	return shown, unread
}

// remembered bounds the incarnations kept for one id.
const remembered = 8

// Remember returns a copy of list with one more incarnation of a host id. Others may share the old list.
func Remember(list []uint64, incarnation uint64) []uint64 {
	if incarnation == 0 || slices.Contains(list, incarnation) {
		return list
	}
	return append(slices.Clone(list[max(0, len(list)+1-remembered):]), incarnation)
}
