// Package check verifies every record of a lockspace without joining it, and decides how a damaged
// record is repaired. It writes only a damaged superblock, in RewriteSuperblock: package daemon
// repairs the rest as a host. Start reading at Check.
package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // a record or a rule of the protocol is broken
	SeverityWarning Severity = "warning" // nothing is broken, but an operator should know
	SeverityNote    Severity = "note"    // unusual but correct
)

// Finding is a fault of a record, a contradiction between records, or a fault of a member disk.
type Finding struct {
	Severity Severity             `json:"severity"`
	What     string               `json:"what"`                                        // name of the record
	Kind     lockspace.RecordKind `json:"kind" jsonschema_extras:"x-extensible-enum="` // empty if it is about no single record
	Lock     int                  `json:"lock_number"`                                 // of the lock of an entry or a slot
	Host     int                  `json:"host"`                                        // id of the host of a host record or a slot
	Offset   int64                `json:"offset"`
	Problem  string               `json:"problem"` // what is wrong
	Remedy   string               `json:"remedy"`  // instruction to the operator
	Repair   bool                 `json:"repair"`  // whether check --repair does it

	// Disk is the position of the member disk that has the copy, or is meant as a whole; 0 if none.
	Disk int `json:"disk,omitempty"`
}

// Result is the result of Check.
type Result struct {
	Device     string            `json:"device"`
	Superblock layout.Superblock `json:"-"`
	Hosts      int               `json:"hosts"`           // number of hosts that ever joined
	Locks      int               `json:"locks"`           // number of locks that have a name
	Records    int               `json:"records"`         // number of records that are not blank
	Findings   []Finding         `json:"findings"`        // what is wrong
	Disks      []Disk            `json:"disks,omitempty"` // member disks, by position; none with one disk
}

// Count returns the number of findings of a severity.
func (c *Result) Count(s Severity) (n int) {
	for _, f := range c.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

const (
	// ConfirmRounds is how often what looks wrong is read again: hosts write while it is checked.
	ConfirmRounds = 8
	// ConfirmPause is the time between two of these.
	ConfirmPause = 10 * time.Millisecond
	// checkRenewals is the number of renewals that show that a host is up and has read the
	// current host table.
	checkRenewals = 2
)

// Options are the options of Check. The zero value is valid.
type Options struct {
	Progress func(message string) // called before steps that take long; nil if not needed
	Counter  lockspace.Counter    // called during steps that take long; nil if not needed
}

// Check verifies every record of a lockspace without joining it; it never writes. On several disks it
// verifies what a majority of them has, and then each copy.
//
// The lockspace may be in use. A contradiction is a finding only if repeated reads show it. If it
// may be left over from a dead host it is a finding only if that host is seen to renew; Check waits
// for that up to half a lease.
//
// It returns the errors of FindLockspace, those of the device as a whole, and the cause of ctx's
// end.
func Check(ctx context.Context, dev blockdev.Device, o Options) (*Result, error) {
	sb, _, err := lockspace.FindLockspace(dev)
	if err != nil {
		return nil, err
	}
	ex := &examiner{Device: dev, ctx: ctx, sb: sb, o: o}
	if set, several := dev.(lockspace.Set); several {
		ex.members = newMembers(set, sb)
	}
	p, err := ex.readPicture(ex.allLocks())
	if err != nil {
		return nil, err
	}
	ex.whole = true
	c := &Result{Device: dev.Info().Path, Superblock: sb, Hosts: len(p.hosts), Records: p.records, Findings: []Finding{}}
	for _, e := range p.entries {
		if !e.Free() {
			c.Locks++
		}
	}
	found, err := ex.confirm(p.suspicions(time.Now()))
	if err != nil {
		return nil, err
	}
	if ex.members != nil {
		c.addDisks(ex.members)
	}
	c.group(found)
	slices.SortFunc(c.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Problem, b.Problem))
	})
	return c, nil
}

// examiner reads a lockspace that hosts may be writing to.
type examiner struct {
	blockdev.Device
	ctx   context.Context
	sb    layout.Superblock
	o     Options
	read  int64 // bytes
	whole bool  // the whole lockspace was read; from here on parts are read again

	members *members // nil on one disk
}

// Read implements blockdev.Device. After the end of the context it returns its cause, which is no
// error of a sector.
func (ex *examiner) Read(p []byte, off int64) error {
	if ex.ctx.Err() != nil {
		return context.Cause(ex.ctx)
	}
	read := ex.Device.Read
	if ex.members != nil {
		read = ex.members.Read
	}
	err := read(p, off)
	if ex.read += int64(len(p)); !ex.whole {
		ex.o.Counter.Report("reading", ex.read, ex.sb.Geometry.Size(), true)
	}
	return err
}

func (ex *examiner) allLocks() []int {
	all := make([]int, ex.sb.Geometry.Locks+1)
	for i := range all {
		all[i] = i
	}
	return all
}

// picture has the records of one pass over some of the locks. It is not of one moment. An entry is
// on the disk before any slot refers to it, and a host record before any slot of its host.
// Therefore slots are read first, then entries, then the host table.
type picture struct {
	ex       *examiner
	locks    []int
	records  int                // number of those that are not blank
	super    []lockspace.Record // the superblock and its copy
	slots    map[int][]layout.Slot
	entries  map[int]layout.Entry
	hosts    map[int]layout.HostRecord
	damaged  []lockspace.Record
	verdicts lockspace.VerdictTable
	faults   []copyFault // of the copies on member disks
	found    []*suspicion
}

// readPicture reads the superblocks, the slots and entries of some locks, and all host records.
func (ex *examiner) readPicture(locks []int) (*picture, error) {
	p := &picture{ex: ex, locks: locks, slots: map[int][]layout.Slot{}, entries: map[int]layout.Entry{}, hosts: map[int]layout.HostRecord{}}
	if ex.members != nil {
		ex.members.faults = nil
	}
	w := lockspace.Walker{Dev: ex, SB: ex.sb, Visit: p.add}
	w.VisitSuperblocks()
	for _, lock := range locks {
		w.VisitSlots(lock, ex.sb.Geometry.Hosts)
	}
	for first := 0; first < len(locks); { // consecutive entries are read together
		n := 1
		for first+n < len(locks) && locks[first+n] == locks[first]+n {
			n++
		}
		from := max(1, locks[first]) // the internal lock has no entry
		w.VisitEntries(from, locks[first]+n-from)
		first += n
	}
	w.VisitHosts()
	if w.Err != nil {
		return nil, w.Err
	}
	if ex.members != nil {
		p.faults = ex.members.faults
	}
	s := lockspace.Snapshot{Hosts: slices.Collect(maps.Values(p.hosts))}
	p.verdicts = s.PublishedVerdicts()
	return p, nil
}

func (p *picture) add(r lockspace.Record) error {
	p.records++
	switch {
	case r.Kind == lockspace.KindSuperblock || r.Kind == lockspace.KindCopy:
		p.super = append(p.super, r)
	case r.Err != nil:
		p.damaged = append(p.damaged, r)
	case r.HostRecord != nil:
		p.hosts[r.Host] = *r.HostRecord
	case r.Entry != nil:
		e := *r.Entry
		e.Token, e.Sequence = 0, 0 // intents are compared with it
		p.entries[r.Lock] = e
	case r.Slot != nil:
		p.slots[r.Lock] = append(p.slots[r.Lock], *r.Slot)
	}
	return nil
}

// hostHidden reports whether the record of a host cannot be read.
func (p *picture) hostHidden(host int) bool {
	return slices.ContainsFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindHost && r.Host == host })
}

// entryHidden reports whether the directory entry of a lock cannot be read.
func (p *picture) entryHidden(lock int) bool {
	return slices.ContainsFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindEntry && r.Lock == lock })
}

// suspicion is a finding that is not confirmed yet.
type suspicion struct {
	Finding
	suspicionKey
	alive []int // hosts that must be up
	locks []int // locks to read again, in addition to Lock
}

// suspicionKey identifies a suspicion across passes.
type suspicionKey struct {
	offset int64
	rule   string
	state  string // state of the records concerned, which must not change
}

// confirm returns the suspicions that every one of ConfirmRounds passes shows.
func (ex *examiner) confirm(found []*suspicion) ([]*suspicion, error) {
	var err error
	for round := 1; round < ConfirmRounds && len(found) > 0; round++ {
		if err := retry.Pause(ex.ctx, ConfirmPause); err != nil {
			return nil, err
		}
		if found, err = ex.reconfirm(found); err != nil {
			return nil, err
		}
	}
	ids := map[int]bool{}
	for _, s := range found {
		for _, id := range s.alive {
			ids[id] = true
		}
	}
	if len(ids) == 0 {
		return found, nil
	}
	up, err := ex.watchRenewals(ids)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s *suspicion) bool {
		return slices.ContainsFunc(s.alive, func(id int) bool { return !up[id] })
	})
	return ex.reconfirm(found)
}

// reconfirm reads the records of suspicions again and returns the suspicions that remain.
func (ex *examiner) reconfirm(found []*suspicion) ([]*suspicion, error) {
	if len(found) == 0 {
		return nil, nil
	}
	concerned := map[int]bool{lockspace.DirectoryLock: true}
	before := map[suspicionKey]bool{}
	for _, s := range found {
		before[s.suspicionKey] = true
		for _, lock := range append(s.locks, s.Lock) {
			concerned[lock] = true
		}
	}
	p, err := ex.readPicture(slices.Sorted(maps.Keys(concerned)))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(p.suspicions(time.Now()), func(s *suspicion) bool { return !before[s.suspicionKey] }), nil
}

// watchRenewals returns the hosts that are seen to renew.
func (ex *examiner) watchRenewals(ids map[int]bool) (map[int]bool, error) {
	lease := ex.sb.Lease
	timeout := checkRenewals*(lease/6+lease/20) + lease/20
	names := []string{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		names = append(names, fmt.Sprint(id))
	}
	if ex.o.Progress != nil {
		ex.o.Progress(fmt.Sprintf("watching up to %v whether these hosts renew their leases: %s", timeout.Round(100*time.Millisecond), strings.Join(names, ", ")))
	}
	seen, up := map[int]layout.HostRecord{}, map[int]bool{}
	begun := time.Now()
	for deadline := begun.Add(timeout); ; {
		ex.o.Counter.Report("watching hosts", time.Since(begun).Milliseconds(), timeout.Milliseconds(), false)
		p, err := ex.readPicture(nil)
		if err != nil {
			return nil, err
		}
		for id := range ids {
			switch r, first := p.hosts[id], seen[id]; {
			case r.State != layout.StateLive:
			case first.Blank():
				seen[id] = r
			case r.Incarnation == first.Incarnation && r.Sequence >= first.Sequence+checkRenewals:
				up[id] = true
			}
		}
		if len(up) == len(ids) || time.Now().After(deadline) {
			return up, nil
		}
		if err := retry.Pause(ex.ctx, lockspace.PollInterval(lease, 250*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}
