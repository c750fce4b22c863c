// Package check verifies every record of a lockspace, without joining it, and decides how what is wrong can be repaired.
// It writes nothing but a damaged superblock, when told to: package daemon repairs the rest as a host.
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

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // a record, or a rule of the protocol, is broken
	SeverityWarning Severity = "warning" // nothing is broken, but somebody should know
	SeverityNote    Severity = "note"    // worth a look, and as it should be
)

// Finding is something that is wrong with a record, or with how records fit together.
type Finding struct {
	Severity Severity             `json:"severity"`
	What     string               `json:"what"` // the record in words
	Kind     lockspace.RecordKind `json:"kind"`
	Lock     int                  `json:"lock"` // of an entry or a slot
	Host     int                  `json:"host"` // of a host record or a slot
	Offset   int64                `json:"offset"`
	Problem  string               `json:"problem"`
	Mend     string               `json:"mend"`   // what to do about it
	Repair   bool                 `json:"repair"` // Repair does
}

// Result is what Check found.
type Result struct {
	Device     string
	Superblock layout.Superblock
	Hosts      int // that ever joined
	Locks      int // that have a name
	Records    int // that are not virgin
	Findings   []Finding
}

// Count counts the findings of a severity.
func (c *Result) Count(s Severity) (n int) {
	for _, f := range c.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

const (
	// Rounds is how often what looks wrong is read again: hosts write while it is checked.
	Rounds = 8
	// Pause is the time between two of these.
	Pause = 10 * time.Millisecond
	// checkRenewals is how often a host must be seen to renew to be known to be up, by a table that it read meanwhile.
	checkRenewals = 2
)

// Options say who is told of the progress. The zero value is of use.
type Options struct {
	Progress func(message string) // is told what takes long; may be nil
	Counter  lockspace.Counter    // likewise, and how far it is
}

// Check verifies every record of a lockspace, without joining it; it never writes. The lockspace may be in use: what
// looks wrong counts only if it goes on to do so, and what could be the rest of a dead host only if that host is seen
// to renew, for which it may take almost half a lease. It returns the errors of FindLockspace, those of the device as
// a whole, and the cause of ctx's end.
func Check(ctx context.Context, dev blockdev.Device, o Options) (*Result, error) {
	progress := o.Progress
	sb, _, err := lockspace.FindLockspace(dev)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	var read int64
	whole := false // it was read; some of it is read again
	dev = lockspace.Watched{Device: dev, Ctx: ctx, Each: func(n int64) {
		if read += n; !whole {
			o.Counter.Tell("reading", read, sb.Geometry.Size(), true)
		}
	}}
	ex := examiner{ctx: ctx, dev: dev, sb: sb, space: sb.Space(), progress: progress, counter: o.Counter}
	all := make([]int, sb.Geometry.Locks+1)
	for i := range all {
		all[i] = i
	}
	p, err := ex.look(all)
	if err != nil {
		return nil, err
	}
	whole = true
	c := &Result{Device: dev.Info().Path, Superblock: sb, Hosts: len(p.hosts), Records: p.records()}
	for _, e := range p.entries {
		if !e.Free() {
			c.Locks++
		}
	}
	found, err := ex.confirm(p.suspicions(time.Now()))
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		s.Severity = cmp.Or(s.Severity, SeverityError)
		c.Findings = append(c.Findings, s.Finding)
	}
	slices.SortFunc(c.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Problem, b.Problem))
	})
	return c, nil
}

// examiner reads a lockspace that others may be writing to.
type examiner struct {
	ctx      context.Context
	dev      blockdev.Device
	sb       layout.Superblock
	space    layout.Space
	progress func(string)
	counter  lockspace.Counter
}

// picture is what one pass over some of the locks has read. It is not of one moment, but in an order that keeps
// what belongs together: an entry is on the disk before any slot tells of it, and a host record before any slot of
// its host. So slots are read first, then entries, then the host table.
type picture struct {
	ex      *examiner
	locks   []int
	super   []lockspace.Record // the superblock and its copy
	slots   map[int][]layout.Slot
	entries map[int]layout.Entry
	hosts   map[int]layout.HostRecord
	damaged []lockspace.Record
	said    lockspace.Published
}

// look reads the slots and entries of some locks, and all host records.
func (ex *examiner) look(locks []int) (*picture, error) {
	p := &picture{ex: ex, locks: locks, slots: map[int][]layout.Slot{}, entries: map[int]layout.Entry{}, hosts: map[int]layout.HostRecord{}}
	w := lockspace.Walker{Dev: ex.dev, Space: ex.space, Visit: p.add}
	if err := w.Superblocks(ex.sb); err != nil {
		return nil, fmt.Errorf("read superblock: %w", err)
	}
	for _, lock := range locks {
		if err := w.Slots(lock, ex.sb.Geometry.Hosts); err != nil {
			return nil, err
		}
	}
	for first := 0; first < len(locks); { // those that lie in a row in one request
		next := first + 1
		for next < len(locks) && locks[next] == locks[next-1]+1 {
			next++
		}
		from := max(1, locks[first])
		if n := locks[next-1] - from + 1; n > 0 {
			if err := w.EntriesOf(from, n); err != nil {
				return nil, err
			}
		}
		first = next
	}
	if err := w.Hosts(); err != nil {
		return nil, err
	}
	s := lockspace.Snapshot{Hosts: slices.Collect(maps.Values(p.hosts))}
	p.said = s.Published()
	return p, nil
}

func (p *picture) add(r lockspace.Record) error {
	switch {
	case r.Kind == lockspace.KindSuperblock || r.Kind == lockspace.KindCopy:
		p.super = append(p.super, r)
	case r.Err != nil:
		p.damaged = append(p.damaged, r)
	case r.HostRecord != nil:
		p.hosts[r.Host] = *r.HostRecord
	case r.Entry != nil:
		p.entries[r.Lock] = *r.Entry
	case r.Slot != nil:
		p.slots[r.Lock] = append(p.slots[r.Lock], *r.Slot)
	}
	return nil
}

// records counts what is not virgin.
func (p *picture) records() int {
	n := len(p.super) + len(p.damaged) + len(p.hosts) + len(p.entries)
	for _, s := range p.slots {
		n += len(s)
	}
	return n
}

// damage returns the record of a kind that cannot be read, if it cannot.
func (p *picture) damage(kind lockspace.RecordKind, lock, host int) (lockspace.Record, bool) {
	i := slices.IndexFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == kind && r.Lock == lock && r.Host == host })
	if i < 0 {
		return lockspace.Record{}, false
	}
	return p.damaged[i], true
}

// suspicion is a finding that is still to be confirmed.
type suspicion struct {
	Finding
	rule  string
	state string // of the records concerned: they must stay so
	alive []int  // hosts that must be up
	locks []int  // to be read again for it, beside its own
}

// sign is what stays the same of a suspicion while it is confirmed.
type sign struct {
	offset      int64
	rule, state string
}

func (s suspicion) sign() sign { return sign{s.Offset, s.rule, s.state} }

// confirm returns those suspicions that hold whenever they are looked at again.
func (ex *examiner) confirm(found []suspicion) ([]suspicion, error) {
	var err error
	for round := 1; round < Rounds && len(found) > 0; round++ {
		if err := retry.Pause(ex.ctx, Pause); err != nil {
			return nil, err
		}
		if found, err = ex.again(found); err != nil {
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
	up, err := ex.watch(ids)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s suspicion) bool {
		return slices.ContainsFunc(s.alive, func(id int) bool { return !up[id] })
	})
	return ex.again(found)
}

// again reads what suspicions are about, and returns those that it still shows.
func (ex *examiner) again(found []suspicion) ([]suspicion, error) {
	if len(found) == 0 {
		return nil, nil
	}
	concerned := map[int]bool{lockspace.DirectoryLock: true}
	before := map[sign]bool{}
	for _, s := range found {
		before[s.sign()] = true
		for _, lock := range append(s.locks, s.Lock) {
			concerned[lock] = true
		}
	}
	p, err := ex.look(slices.Sorted(maps.Keys(concerned)))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(p.suspicions(time.Now()), func(s suspicion) bool { return !before[s.sign()] }), nil
}

// watch returns which of the hosts are seen to renew.
func (ex *examiner) watch(ids map[int]bool) (map[int]bool, error) {
	lease := ex.sb.Lease
	patience := checkRenewals*(lease/6+lease/20) + lease/20
	names := []string{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		names = append(names, fmt.Sprint(id))
	}
	ex.progress(fmt.Sprintf("watching up to %v whether these hosts renew their leases: %s", patience.Round(100*time.Millisecond), strings.Join(names, ", ")))
	seen, up := map[int]layout.HostRecord{}, map[int]bool{}
	begun := time.Now()
	for deadline := begun.Add(patience); ; {
		ex.counter.Tell("watching hosts", time.Since(begun).Milliseconds(), patience.Milliseconds(), false)
		p, err := ex.look(nil)
		if err != nil {
			return nil, err
		}
		for id := range ids {
			r, ok := p.hosts[id]
			first, before := seen[id]
			switch {
			case !ok || r.State != layout.StateLive:
			case !before:
				seen[id] = r
			case r.Incarnation == first.Incarnation && r.Sequence >= first.Sequence+checkRenewals:
				up[id] = true
			}
		}
		if len(up) == len(ids) || time.Now().After(deadline) {
			return up, nil
		}
		if err := retry.Pause(ex.ctx, lockspace.PollEvery(lease, 250*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}
