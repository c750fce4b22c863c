package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	// minPatience is the minimum wait for an IO before the device counts as hanging.
	minPatience = 3 * time.Second
	// maxPatience limits the wait for a whole report: less than the timeout of its requesters.
	maxPatience = 20 * time.Second
)

// inspection is a read of the lockspace for reports. It continues even if no caller waits for it any
// more, and ends with its IO. Closing the device waits for that.
type inspection struct {
	blockdev.Device
	clock    clock.Clock
	whole    bool // not only what is hot
	began    time.Duration
	patience time.Duration // an IO that takes longer hangs
	returned atomic.Int64  // when its last IO returned
	hung     atomic.Bool   // an IO did
	bytes    atomic.Int64  // that were read
	done     chan struct{} // closed when the fields below are set
	took     time.Duration
	snapshot *lockspace.Snapshot
	err      error
}

// inspector reads a lockspace, or part of it.
type inspector func(blockdev.Device) (*lockspace.Snapshot, error)

// inspect reads the whole lockspace, unless the device hangs.
func (h *Host) inspect() (*inspection, error) {
	give := h.clock.Now() + maxPatience
	for {
		h.inspected.mu.Lock()
		in, own := h.beginInspection(true, lockspace.Inspect)
		h.inspected.mu.Unlock()
		if err := h.await(in, give); err != nil {
			return nil, h.withLease(err)
		}
		if own { // another caller's may have begun before the change that this caller wants to see
			return in, in.err
		}
	}
}

// beginInspection returns the inspection in progress, or starts one; own reports the latter. Called
// with h.inspected.mu held.
func (h *Host) beginInspection(whole bool, read inspector) (in *inspection, own bool) {
	g := &h.inspected
	if g.now != nil {
		return g.now, false
	}
	in = &inspection{Device: h.devices.Report, clock: h.clock, whole: whole, began: h.clock.Now(), done: make(chan struct{}),
		patience: min(max(minPatience, h.times().Budget()), maxPatience)}
	in.returned.Store(int64(in.began))
	g.now = in
	go func() {
		defer close(in.done)
		in.snapshot, in.err = read(in)
		in.took = h.clock.Now() - in.began
		g.ended(in)
	}()
	return in, true
}

// Read implements blockdev.Device for the function that inspects.
func (in *inspection) Read(p []byte, off int64) error {
	in.bytes.Add(int64(len(p)))
	err := in.Device.Read(p, off)
	now := in.clock.Now()
	if before := in.returned.Swap(int64(now)); now-time.Duration(before) >= in.patience {
		in.hung.Store(true)
	}
	return err
}

// await waits for the end of an inspection as long as its IO returns.
func (h *Host) await(in *inspection, give time.Duration) error {
	for {
		left, err := h.patience(in, give)
		if err != nil {
			return err
		}
		select {
		case <-in.done:
			return nil
		case <-time.After(left):
		}
	}
}

// patience returns how long to wait for an inspection, at most until give, or an error if it takes too
// long.
func (h *Host) patience(in *inspection, give time.Duration) (left time.Duration, err error) {
	now, after := h.clock.Now(), in.patience
	why := "IO to %s hangs"
	end := time.Duration(in.returned.Load()) + after
	if now < end {
		end, after, why = min(end, give), maxPatience, "%s is slow"
	}
	if now < end {
		return end - now, nil
	}
	return 0, fmt.Errorf("reading the lockspace takes longer than %v: "+why, after, h.lateDisks(after))
}

// lateDisks returns the disks that are not up, or have not answered a request for the time; the device
// if there are none.
func (h *Host) lateDisks(after time.Duration) string {
	var late []string
	for _, m := range lockspace.MemberDisks(h.devices.Opened) {
		if m.State != mirror.Up || m.Stats.Oldest >= after {
			late = append(late, m.Name)
		}
	}
	return cmp.Or(strings.Join(late, ", "), h.disk.Dev.Info().Path)
}

// withLease adds to an error of patience the state of the lease, which matters most to its reader.
func (h *Host) withLease(err error) error {
	lease := "this host has lost its lease"
	switch left := h.leaseLeft(); {
	case h.Err() != nil:
		lease += fmt.Sprintf(": %v", h.Err())
	case left > 0:
		lease = "the lease of this host ends in " + report.Left(left)
	}
	return fmt.Errorf("%w; %s", err, lease)
}

// The status page asks continuously, in every window, on every host, and a report reads all slots
// of all locks. Therefore the pages of a host share what was read, at an interval that depends on
// the size of the lockspace. The host knows its lease, the renewals of other hosts and its clients
// without reading. These are current in every answer.
const (
	// minimum interval of reading the locks that are held or waited for
	glanceEvery = 2 * time.Second
	glanceHot   = 1 << 20 // bytes read of these each time, and of the host table
	glanceRate  = 2 << 20 // bytes a second read of all others
	glanceShare = 10      // the device is read at most 1/glanceShare of the time

	glancePatience = time.Second     // how long a page waits for a read
	glanceFirst    = 5 * time.Second // how long it waits for the first one
)

// statusCache is what was read of the disk. It has at most one inspection in progress: repeated
// requests must not fill the kernel with IO to a device that hangs.
type statusCache struct {
	mu    sync.Mutex    // guards the rest
	now   *inspection   // in progress; nil if none
	kept  *inspection   // the last one without an error; nil if none yet
	err   error         // of the last one
	next  time.Duration // when pages may begin another one
	all   time.Duration // when the whole lockspace was last read
	pause time.Duration // after which it is read again
	turn  int           // index at which the next read of hot locks begins if there are too many
}

// ended keeps what an inspection has read.
func (g *statusCache) ended(in *inspection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now, g.err, g.next = nil, in.err, in.began+in.took+glanceEvery
	if in.err != nil {
		return
	}
	if g.kept = in; in.whole {
		g.all, g.pause = in.began, time.Duration(in.bytes.Load())*time.Second/glanceRate
	}
	if !in.hung.Load() {
		g.next = max(g.next, in.began+(1+glanceShare)*in.took)
	}
}

// Glance returns the current answer for a page. It starts a read if one is due, and waits for it up
// to glancePatience, for the first one up to glanceFirst.
func (h *Host) Glance() *report.Glance {
	g := &h.inspected
	began, patience := h.clock.Now(), glanceFirst
	g.mu.Lock()
	if g.kept != nil {
		patience = glancePatience
	}
	if g.now == nil && began >= g.next {
		whole, read := true, inspector(lockspace.Inspect)
		if g.kept != nil && began < g.all+g.pause {
			whole, read = false, h.again(g, g.kept.snapshot)
		}
		h.beginInspection(whole, read)
	}
	in := g.now
	g.mu.Unlock()
	if in != nil {
		_ = h.await(in, began+patience)
	}
	g.mu.Lock()
	in, kept, err, pause := g.now, g.kept, g.err, g.pause
	g.mu.Unlock()
	if in != nil {
		if _, late := h.patience(in, in.began+maxPatience); late != nil {
			err = late
		}
	}
	a := h.known(kept, pause)
	switch {
	case kept == nil && err == nil:
		a.Error = &api.Error{Code: api.CodeDevice, Message: "the lockspace is still being read", Hint: "Is the device slow? See dmesg, and multipath -ll."}
		a.Report.AddProblem(report.Problem{Severity: report.SeverityWarning, Kind: report.ProblemDevice, Subject: "device", Text: "the locks are not known yet",
			Why: a.Error.Message, Remedy: a.Error.Hint})
	case err != nil:
		a.Error = api.ErrorOf(err)
		a.Report.AddReadError(a.Error.Message, a.Error.Hint, time.Duration(a.Read.AgoMS)*time.Millisecond)
	}
	return a
}

// remembered returns what this host knows now, for pages after the end of its term. It reads nothing.
func (h *Host) remembered() *report.Glance {
	g := &h.inspected
	g.mu.Lock()
	kept, pause := g.kept, g.pause
	g.mu.Unlock()
	return h.known(kept, pause)
}

// known returns what this host knows now, with the locks of the last inspection; without locks if that is
// nil.
func (h *Host) known(kept *inspection, pause time.Duration) *report.Glance {
	a := &report.Glance{At: time.Now().UTC()}
	if kept == nil {
		s := &lockspace.Snapshot{Device: h.disk.Dev.Info(), Superblock: h.disk.SB}
		h.addKnown(s, -1)
		a.Report = h.tell(&inspection{began: h.clock.Now(), snapshot: s})
		return a
	}
	a.Report = h.tell(kept)
	a.Read = report.GlanceRead{AgoMS: (h.clock.Now() - kept.began).Milliseconds(), TookMS: kept.took.Milliseconds(), Bytes: kept.bytes.Load(),
		EveryMS: max(pause, glanceEvery).Milliseconds()}
	return a
}

// addKnown adds to a snapshot the hosts as the host table shows them, if that was read after a time: it is
// read for every renewal. A record of this host in the snapshot remains.
func (h *Host) addKnown(s *lockspace.Snapshot, after time.Duration) {
	s.Hosts = slices.Clone(s.Hosts)
	hosts, _ := h.mem.Known()
	for i, known := range hosts {
		id := i + 1
		damaged := slices.ContainsFunc(s.Damaged, func(d lockspace.Record) bool { return d.Kind == lockspace.KindHost && d.Host == id })
		at := slices.IndexFunc(s.Hosts, func(r layout.HostRecord) bool { return r.ID == id })
		switch {
		case id == h.mem.ID() && at >= 0, damaged, known.Incarnation == 0, known.Read <= after:
		case at < 0:
			s.Hosts = append(s.Hosts, report.Remembered(id, known))
		case s.Hosts[at].Incarnation != known.Incarnation:
			s.Hosts[at] = report.Remembered(id, known)
		default:
			s.Hosts[at].State = known.State
		}
	}
}

// again returns a function that reads the locks of a snapshot that are held or waited for, up to
// glanceHot bytes.
func (h *Host) again(g *statusCache, s *lockspace.Snapshot) inspector {
	hot := map[int]bool{}
	for _, slot := range s.Slots {
		hot[slot.Lock] = hot[slot.Lock] || slot.Phase != layout.Idle
	}
	for _, number := range h.InUse() {
		hot[number] = true
	}
	var locks []int
	for _, number := range s.UsedLocks() {
		if hot[number] {
			locks = append(locks, number)
		}
	}
	geometry, highest := s.Superblock.Geometry, max(s.HighestHost(), h.mem.Highest())
	room := glanceHot
	hosts := geometry.Hosts*geometry.Stride <= room/2
	if hosts {
		room -= geometry.Hosts * geometry.Stride
	}
	if most := max(1, room/(highest*geometry.Stride)); len(locks) > most {
		g.turn = (g.turn + most) % len(locks)
		locks = slices.Concat(locks[g.turn:], locks[:g.turn])[:most]
	}
	return func(dev blockdev.Device) (*lockspace.Snapshot, error) { return s.Reread(dev, locks, highest, hosts) }
}
