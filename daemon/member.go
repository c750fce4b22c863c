package daemon

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// errReplaced is returned when the device no longer holds the lockspace that was joined.
var errReplaced = errors.New("the lockspace on the device is another one, or gone")

// member drives the lease on the device. Its IO runs in goroutines of its
// own, so that no IO holds up the timer by which the lease expires.
type member struct {
	dev   blockdev.Device
	sb    layout.Superblock
	space layout.Space
	log   *slog.Logger
	ids   *identity

	mu      sync.Mutex // guards m, claimed, changed and reason
	m       *lease.Machine
	claimed int // id whose lock file is held, 0: none
	timer   *time.Timer
	changed chan struct{} // closed and replaced after every event
	reason  error

	ready chan struct{} // closed: tickets may be taken
	lost  chan struct{} // closed: the lease is over, for good
	over  chan struct{} // closed: the machine has said its last word
	io    sync.WaitGroup
}

func newMember(dev blockdev.Device, sb layout.Superblock, log *slog.Logger, ids *identity, id int) (*member, error) {
	mb := &member{dev: dev, sb: sb, space: sb.Space(), log: log, ids: ids,
		changed: make(chan struct{}), ready: make(chan struct{}), lost: make(chan struct{}), over: make(chan struct{})}
	m, err := lease.New(lease.Config{
		ID: id, Hosts: sb.Geometry.Hosts, Times: lease.Times{Lease: sb.Lease},
		Self: ids.record(), Incarnation: newIncarnation, Left: ids.left(),
	})
	if err != nil {
		return nil, err
	}
	mb.m = m
	mb.timer = time.AfterFunc(time.Hour, func() { mb.event(mb.m.Tick) })
	mb.timer.Stop()
	return mb, nil
}

func newIncarnation() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

// event gives the machine an event and carries out what it wants. Logging
// comes last, so that a log that blocks does not hold up the lease.
func (mb *member) event(f func(now time.Duration) []lease.Action) {
	mb.mu.Lock()
	actions := f(boottime())
	mb.carryOut(actions)
	mb.mu.Unlock()
	for _, a := range actions {
		switch a := a.(type) {
		case lease.Delayed:
			mb.log.Warn("joining takes longer, waiting", "left", (a.Until - boottime()).Round(time.Second), "reason", a.Reason)
		case lease.Joined:
			mb.log.Info("live in lockspace", "lockspace", cmp.Or(mb.sb.Name, mb.sb.UUID.String()), "host_id", a.ID, "incarnation", fmt.Sprintf("%016x", a.Incarnation))
		case lease.Lost:
			mb.log.Error("lease lost, every hold is over", "err", a.Reason)
		}
	}
}

// carryOut is called with mu held. Reads and writes report back on their own.
func (mb *member) carryOut(actions []lease.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case lease.ReadTable:
			mb.io.Go(mb.readTable)
		case lease.Write:
			mb.io.Go(func() { mb.writeRecord(a.Record) })
		case lease.Wait:
			mb.timer.Reset(max(0, a.Until-boottime()))
		case lease.Ready:
			close(mb.ready)
		case lease.Lost:
			mb.end(a.Reason, true)
		case lease.Refused:
			mb.end(a.Reason, false)
		case lease.Left:
			mb.ids.keepLeft(mb.m.ID(), a.Incarnation)
			mb.end(nil, false)
		}
	}
	close(mb.changed)
	mb.changed = make(chan struct{})
}

func (mb *member) end(reason error, lost bool) {
	mb.timer.Stop()
	if reason != nil && mb.reason == nil {
		mb.reason = reason
	}
	if lost {
		close(mb.lost)
	}
	close(mb.over)
}

// readTable reads the superblocks and the host table, which lie together, in
// one request.
func (mb *member) readTable() {
	g := mb.space.Geometry
	buf := pool.Get(int(g.Host(g.Hosts)) + g.Stride)
	defer pool.Put(buf)
	errs, err := readRecords(mb.dev, buf, 0, g.Stride)
	if err != nil {
		mb.log.Warn("reading the host table failed, retrying", "err", err)
		mb.event(mb.m.ReadFailed)
		return
	}
	if err := mb.sameLockspace(buf, errs); err != nil {
		mb.event(func(now time.Duration) []lease.Action { return mb.m.Lose(now, err) })
		return
	}
	records := make([]lease.Record, g.Hosts)
	for i := range records {
		at := int(g.Host(i + 1))
		records[i].Err = errs[at/g.Stride]
		if records[i].Err == nil {
			records[i].HostRecord, records[i].Err = mb.space.DecodeHost(buf[at:at+g.Stride], i+1)
		}
	}
	mb.event(func(now time.Duration) []lease.Action { return mb.m.TableRead(now, records) })
}

// sameLockspace tells whether the superblocks in head are still those of the
// lockspace that was joined. Format wipes or replaces both.
func (mb *member) sameLockspace(head []byte, errs []error) error {
	var found error
	for copy := range 2 {
		at := int(mb.space.Geometry.Superblock(copy))
		if errs[at/mb.space.Geometry.Stride] != nil {
			return nil // unreadable: cannot tell; the lease runs out if nothing else can be read
		}
		sb, err := layout.DecodeSuperblock(head[at:at+mb.space.Geometry.Stride], copy)
		switch {
		case err == nil && sb.UUID == mb.sb.UUID:
			return nil
		case err == nil:
			found = fmt.Errorf("%w: lockspace %s, was %s", errReplaced, sb.UUID, mb.sb.UUID)
		case found == nil:
			found = fmt.Errorf("%w: %w", errReplaced, err)
		}
	}
	return found
}

// writeRecord writes the own record. The first write of an id takes the lock
// file that keeps other processes of this machine from it.
func (mb *member) writeRecord(r layout.HostRecord) {
	err := mb.claimID(r.ID)
	if err != nil {
		mb.event(func(now time.Duration) []lease.Action {
			return append(mb.m.WriteFailed(now), mb.m.Lose(now, err)...)
		})
		return
	}
	buf := pool.Get(mb.space.Geometry.Stride)
	defer pool.Put(buf)
	if err = mb.space.EncodeHost(buf, r); err == nil {
		err = mb.dev.Write(buf, mb.space.Geometry.Host(r.ID))
	}
	if err != nil {
		mb.log.Warn("writing the host record failed, retrying", "host_id", r.ID, "err", err)
		mb.event(mb.m.WriteFailed)
		return
	}
	mb.event(mb.m.Written)
}

func (mb *member) claimID(id int) error {
	mb.mu.Lock()
	claimed := mb.claimed
	mb.mu.Unlock()
	if claimed == id {
		return nil
	}
	if err := mb.ids.claim(id); err != nil {
		return err
	}
	mb.mu.Lock()
	mb.claimed = id
	mb.mu.Unlock()
	return nil
}

func (mb *member) id() int {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.ID()
}

func (mb *member) incarnation() uint64 {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.Incarnation()
}

func (mb *member) err() error {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.reason
}

// mayWrite tells whether a slot may be written or a lock granted now, and what
// will be closed when that may have changed.
func (mb *member) mayWrite() (bool, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.MayWrite(boottime()), mb.changed
}

// highest is how many hosts a read of slots that begins now must cover.
func (mb *member) highest() int {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.Highest()
}

// leaseLeft is how long the lease still runs, and what will be closed when
// that may have changed.
func (mb *member) leaseLeft() (time.Duration, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.Deadline() - boottime(), mb.changed
}

// known is what the last read of the host table told.
func (mb *member) known() ([]lease.Host, <-chan struct{}) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.m.Hosts(), mb.changed
}

// readHosts returns the host table as the protocol wants it, by a read begun
// after the call.
func (mb *member) readHosts() ([]bakery.Host, error) {
	asked := boottime()
	mb.event(mb.m.Refresh)
	for {
		hosts, changed := mb.known()
		if tableRead(hosts) >= asked {
			return protocolHosts(hosts, asked), nil
		}
		select {
		case <-changed:
		case <-mb.over:
			return nil, fmt.Errorf("reading the host table: %w", ErrLost)
		}
	}
}

// tableRead is when the last read of the table was begun.
func tableRead(hosts []lease.Host) time.Duration {
	var at time.Duration
	for _, h := range hosts {
		at = max(at, h.Read)
	}
	return at
}

func protocolHosts(hosts []lease.Host, since time.Duration) []bakery.Host {
	out := make([]bakery.Host, len(hosts))
	for i, h := range hosts {
		out[i] = bakery.Host{Readable: h.Readable && h.Read >= since, Incarnation: h.Incarnation, Gone: h.Gone, Unsettled: !h.Settled}
	}
	return out
}

// leave gives up the membership and waits until that is on the disk, or the
// lease is over.
func (mb *member) leave() {
	mb.event(func(now time.Duration) []lease.Action {
		if mb.m.Over() {
			return nil
		}
		return mb.m.Leave(now)
	})
	<-mb.over
}
