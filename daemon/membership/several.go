package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/members"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Set is the device of a lockspace on several disks: see [lockspace.Disks]. The rules that are named here are
// those of package lease/members.
type Set interface {
	blockdev.Device
	ReadCopies(p []byte, off int64, need mirror.Positions, visit func(mirror.Copy)) error
	Own(host int, incarnation uint64)
	WriteCount(p []byte, off int64) (acked mirror.Positions, err error)
	Drop(off, n int64) (inFlight mirror.Positions)
	Finish(off, n int64, most time.Duration) (inFlight mirror.Positions)
	Acked(off int64, position int) mirror.Version
	Kept(off int64, position int) mirror.Version
	Recheck(position int, reason error)
	Members() []mirror.Status
	Superblock() layout.Superblock // with the list of member disks in use
	Follow() (changed bool, err error)
}

// errLost is returned when a member does not have what this host wrote there (IDENTITY).
var errLost = errors.New("the member disk lost what this host had written")

// errNoList is returned when no majority of the members has a valid superblock.
var errNoList = errors.New("the list of member disks was not read")

// errInFlight is returned when a copy does not return.
var errInFlight = errors.New("a write is in flight")

// scan is one read of the host table on several disks. Its reads keep the copies of host records.
type scan struct {
	Set
	mb      *Member
	records []lease.Record
	counted []int // members whose copies a claim needs (COUNT); nil if none

	live        bool             // whether this host is
	own         int              // the own host id; 0 if it is not known
	incarnation uint64           // of the last own record that was written
	acked       []mirror.Version // of the own record, by position, before the read

	alone sync.WaitGroup // reads of single records
	mu    sync.Mutex     // guards the fields below and the copies while these run

	missed   mirror.Positions              // members that failed in the last read, if that was of several records
	answered mirror.Positions              // members that returned any record
	foreign  [superblocks]mirror.Positions // members on which a superblock is blank, or not this lockspace's
	lost     []error                       // why a member must be checked; nil if not
	listing  mirror.Positions              // members of which a superblock was read
	epoch    uint64                        // newest list of members that one of them has
}

// newScan begins a read of the host table.
func (mb *Member) newScan(records []lease.Record, counted []int) *scan {
	n := mb.cfg.Lease.Members
	s := &scan{Set: mb.set, mb: mb, records: records, acked: make([]mirror.Version, n), lost: make([]error, n)}
	copies := make([]lease.Copy, n*len(records))
	for i := range records {
		records[i].Copies = copies[i*n:][:n:n]
	}
	mb.mu.Lock()
	s.own, s.incarnation = mb.m.ID(), mb.written
	if s.live = mb.m.Deadline() != 0; !s.live {
		s.counted = counted
	}
	mb.mu.Unlock()
	for k := range s.acked {
		if s.own != 0 {
			s.acked[k] = mb.set.Kept(mb.cfg.SB.Geometry.Host(s.own), k)
		}
	}
	return s
}

// Read implements blockdev.Device.
func (s *scan) Read(p []byte, off int64) error {
	s.missed = 0
	return s.read(p, off, 0)
}

func (s *scan) read(p []byte, off int64, need mirror.Positions) error {
	stride := s.mb.cfg.SB.Geometry.Stride
	if off == 0 && len(p) == stride { // of all members that answer, for finish
		need = mirror.At(len(s.acked)) - 1
	}
	return s.ReadCopies(p, off, need, func(c mirror.Copy) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.Block != nil {
			s.answered |= mirror.At(c.Position)
		} else if len(p) > stride {
			s.missed |= mirror.At(c.Position)
			return
		}
		if i := int(off)/stride + c.Record; i >= superblocks {
			s.take(i-superblocks, c)
		} else if c.Block != nil && (c.Err != nil || c.Version == mirror.Version{}) {
			s.distrust(i, c.Position)
		} else if c.Block != nil {
			s.listing |= mirror.At(c.Position)
			s.epoch = max(s.epoch, c.Version.Epoch)
		}
	})
}

// take keeps a copy of a host record.
func (s *scan) take(i int, c mirror.Copy) {
	r := lease.Copy{Read: c.Block != nil, Err: c.Err}
	if c.Err == nil {
		r.HostRecord, r.Err = s.mb.cfg.SB.Space().DecodeHost(c.Block, i+1)
	}
	s.records[i].Copies[c.Position] = r
	acked := s.acked[c.Position]
	// A claim of another host that read the same record has the generation of the own one.
	rival := c.Version.Epoch == acked.Epoch && r.Incarnation != s.incarnation
	if i+1 == s.own && r.Err == nil && c.Version.Less(acked) && !rival {
		s.lost[c.Position] = fmt.Errorf("%w: its record of host %d has version %d.%d, want %d.%d",
			errLost, s.own, c.Version.Epoch, c.Version.Counter, acked.Epoch, acked.Counter)
	}
}

// distrust records that a superblock of a member is not this lockspace's. Damage hits one of them.
func (s *scan) distrust(copy, position int) {
	s.foreign[copy] |= mirror.At(position)
	if (s.foreign[0] & s.foreign[1]).Has(position) {
		s.lost[position] = fmt.Errorf("%w: it has no superblock of the lockspace", errLost)
	}
}

// replaced reports whether a majority of the members showed that a superblock is not this lockspace's. One
// that is late may have it.
func (s *scan) replaced(copy int) bool { return s.foreign[copy].Count() > len(s.acked)/2 }

// list returns the epoch of the newest list on a majority of the members. It reads the superblocks alone if
// members failed to read them with other records.
func (s *scan) list() (epoch uint64, err error) {
	g := s.mb.cfg.SB.Geometry
	for which := 0; which < superblocks && s.listing.Count() <= len(s.acked)/2; which++ {
		p := lockspace.Pool.Get(g.Stride)
		err = s.read(p, g.Superblock(which), 0)
		lockspace.Pool.Put(p)
	}
	if s.listing.Count() <= len(s.acked)/2 {
		return s.epoch, fmt.Errorf("%w: %w", errNoList, err)
	}
	return s.epoch, nil
}

// complete begins to read a host record alone if members failed to read it with others, perhaps because of a bad
// sector elsewhere, and their copies are needed. Each of these reads may wait for a member that hangs. A claim
// needs the copies of all members that count, unless enough of these show it already.
func (s *scan) complete(i int) {
	valid, need := 0, mirror.Positions(0)
	for _, c := range s.records[i].Copies {
		if c.Read && c.Err == nil {
			valid++
		}
	}
	if i+1 == s.own && s.counted != nil {
		if shown, _ := members.Shown(s.records[i].Copies, s.counted, s.incarnation); shown <= len(s.acked)/2 {
			need = positions(s.counted)
		}
	}
	if need == 0 && (s.missed == 0 || valid > len(s.acked)/2) {
		return
	}
	s.alone.Go(func() {
		g := s.mb.cfg.SB.Geometry
		p := lockspace.Pool.Get(g.Stride)
		defer lockspace.Pool.Put(p)
		_ = s.read(p, g.Host(i+1), need) // its error is in the copies
	})
}

func positions(list []int) (ps mirror.Positions) {
	for _, k := range list {
		ps |= mirror.At(k)
	}
	return ps
}

// finish ends the read. A member that failed to read a record, and read another, has a bad sector. The
// copies of a member that must be checked count for nothing (IDENTITY).
func (s *scan) finish() {
	for k, reason := range s.lost {
		for i := range s.records {
			c := &s.records[i].Copies[k]
			c.Read = c.Read || s.answered.Has(k) && lockspace.IsBadSector(c.Err)
			if reason != nil {
				*c = lease.Copy{}
			}
		}
		if reason == nil {
			continue
		}
		s.Recheck(k, reason)
		if s.mb.distrusts.Allow() {
			s.mb.logAside(s.mb.cfg.Log.Warn, "checking a member disk, which has no vote until it passes", "member", s.Members()[k].Name, "err", reason)
		}
	}
}

// write writes the encoded host record to the member disks, and returns those that acknowledged it. A claim
// waits for all of them, up to half of its budget: if it counted the first alone, and one of these failed, it
// would have to be repeated although a majority has it (COUNT).
func (mb *Member) write(buf []byte, r layout.HostRecord) (members []int, err error) {
	if mb.IsOver() { // LAST-CALL
		return nil, mirror.ErrDropped
	}
	off := mb.cfg.SB.Geometry.Host(r.ID)
	version, latest := mirror.Version{Epoch: uint64(r.Generation), Counter: r.Sequence}, mb.cfg.Clock.Now()+mb.times().ClaimBudget()/2
	mb.set.Own(r.ID, r.Incarnation)
	acked, err := mb.set.WriteCount(buf, off)
	switch {
	case err != nil:
		mb.set.Drop(off, int64(len(buf)))
	case r.State == layout.StateJoining: // no copy lands after the host gave up the claim
		mb.set.Finish(off, int64(len(buf)), latest-mb.cfg.Clock.Now())
	}
	if err == nil && r.State == layout.StateLeft { // else its incarnation has not ended cleanly
		_ = mb.awaitCopies(off, int64(len(buf)))
	}
	for k := range mb.cfg.Lease.Members {
		if acked.Has(k) || mb.set.Acked(off, k) == version {
			members = append(members, k)
		}
	}
	return members, err
}

// notAnswering returns an attribute for the log with the result of silentDisks; none with one disk.
func (mb *Member) notAnswering() (attrs []any) {
	if mb.set == nil {
		return nil
	}
	return []any{"not_answering", mb.silentDisks()}
}

// silentDisks returns the members that are not up, or that have a request that has taken longer than the budget.
func (mb *Member) silentDisks() string {
	var silent []string
	for _, m := range mb.set.Members() {
		if oldest := m.Stats.Oldest; m.State != mirror.Up || oldest > mb.times().Budget() {
			state := m.State.String()
			if m.State == mirror.Up && oldest > lockspace.HangAfter { // as bakeryctl disks shows it
				state = "hangs"
			}
			silent = append(silent, fmt.Sprintf("%s (%s, oldest request %v)", m.Name, state, oldest.Round(time.Millisecond)))
		}
	}
	return strings.Join(silent, ", ")
}

// beforeLeft returns when no copy of this incarnation is in flight to any member (FIFO), and no process
// can resume it (LEFT-FIRST).
func (mb *Member) beforeLeft() error {
	mb.returned(&mb.writing) // no IO of the lease is in flight that could be reported as hanging
	err := mb.awaitCopies(0, mb.set.Info().Size)
	if file := locked(mb, func(*lease.Machine) *handover.File { return mb.keeper }); err == nil && file != nil {
		err = file.Discard()
	}
	mb.mu.Lock()
	defer mb.mu.Unlock()
	mb.begins(&mb.writing)
	if deadline := mb.m.Deadline(); err == nil && deadline != 0 && mb.cfg.Clock.Now()+mb.times().Budget() >= deadline { // LAST-CALL
		err = lease.ErrExpired
	}
	if err != nil {
		mb.logAside(mb.cfg.Log.Warn, "ending without leaving: other hosts must wait as after a failure", "err", err)
	}
	return err
}

// awaitCopies gives up the copies in a range that were not begun, and waits for those in flight, as long as
// holders may take to stop. It returns an error that names the members that did not return them. It does not
// wait for members that have not returned anything for that long already.
func (mb *Member) awaitCopies(off, n int64) error {
	ctx, cancel := context.WithTimeout(mb.over, mb.times().Grace())
	defer cancel()
	mb.set.Finish(off, n, mb.times().Budget()) // no other host writes them
	for {
		inFlight := mb.set.Drop(off, n)
		if inFlight == 0 {
			return nil
		}
		var names []string
		hopeless := true
		for k, m := range mb.set.Members() {
			if inFlight.Has(k) {
				names = append(names, m.Name)
				hopeless = hopeless && m.Stats.Oldest >= mb.times().Grace()
			}
		}
		if !hopeless {
			select {
			case <-time.After(mb.times().Poll()):
				continue
			case <-ctx.Done():
			}
		}
		return fmt.Errorf("%w on %s", errInFlight, strings.Join(names, ", "))
	}
}

// dropCopies gives up all copies of this incarnation that were not begun (LAST-CALL), also those of a write
// that is just beginning. It reports whether no copy of the own record can land any more.
func (mb *Member) dropCopies(id int) bool {
	for {
		mb.set.Drop(0, mb.set.Info().Size)
		if locked(mb, func(*lease.Machine) bool { return mb.writing.since == 0 }) {
			break
		}
		time.Sleep(mb.times().Retry())
	}
	if id == 0 {
		return true
	}
	off := mb.cfg.SB.Geometry.Host(id)
	if mb.set.Drop(off, int64(mb.cfg.SB.Geometry.Stride)) != 0 {
		return false
	}
	for k, m := range mb.set.Members() {
		if m.Failures > 0 && mb.set.Acked(off, k) == (mirror.Version{}) { // the last write failed
			return false
		}
	}
	return true
}
