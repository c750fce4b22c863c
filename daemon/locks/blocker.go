package locks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

const (
	// blockerEvery is the minimum interval of reading the slots of a lock for its blocker.
	blockerEvery = 200 * time.Millisecond

	// mostBlockerReads is the maximum of these reads in flight. The grants of locks need the device, too.
	mostBlockerReads = 8
)

// blockerReads are the reads of slots for blockers, one a lock at most, because hundreds of clients may
// ask at a time. A read also answers the calls of the next blockerEvery.
type blockerReads struct {
	turns  chan struct{} // has one element for each read in flight; its capacity is the maximum
	mu     sync.Mutex    // guards byName
	byName map[string]*blockerRead
}

func newBlockerReads() *blockerReads {
	return &blockerReads{turns: make(chan struct{}, mostBlockerReads), byName: map[string]*blockerRead{}}
}

type blockerRead struct {
	done     chan struct{} // closed when the fields below are set
	snapshot *lockspace.Snapshot
	err      error
}

// current returns the current read for a name, nil if there is none.
func (b *blockerReads) current(name string) *blockerRead {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byName[name]
}

// begin returns the current read for a name, or starts one with read when fewer than the maximum are
// in flight. It returns the cause of ctx's end.
func (b *blockerReads) begin(ctx context.Context, name string, read func() (*lockspace.Snapshot, error)) (*blockerRead, error) {
	if r := b.current(name); r != nil {
		return r, nil
	}
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.byName[name]; r != nil { // another caller was faster
		<-b.turns
		return r, nil
	}
	r := &blockerRead{done: make(chan struct{})}
	b.byName[name] = r
	go func() {
		r.snapshot, r.err = read()
		<-b.turns
		close(r.done)
		time.AfterFunc(blockerEvery, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.byName, name)
		})
	}()
	return r, nil
}

// Blocker returns in words what a client that requests a lock waits for; "" if the lock is free, if the
// disk does not show it yet, or if this host does not know the lock. A host knows every lock that one of
// its clients waits for. Blocker reads the entry and the slots of the lock. The hosts are as this host
// last read them.
//
// It returns ErrInvalid, ErrNoLock, ErrDamaged, ErrUnavailable, an error of the device, or the cause of
// ctx's end.
func (m *Manager) Blocker(ctx context.Context, name string) (string, error) {
	if err := layout.ValidateLockName(name); err != nil {
		return "", fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	e, ok := m.dir.Remembered(name)
	if !ok {
		return "", nil // reading the whole directory would cost more than the answer is worth
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a call that has no turn ends
	return runDetached(ctx, m, func() (string, error) {
		r, err := m.blockers.begin(ctx, name, func() (*lockspace.Snapshot, error) { return m.readLock(e) })
		if err != nil {
			return "", err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if r.err != nil {
			return "", r.err
		}
		hosts, _ := m.mem.Known()
		now := m.disk.Clock.Now()
		of := report.BuildLock(r.snapshot, &report.Knowledge{Now: now, Taken: now, Times: m.disk.Times(), Hosts: hosts},
			layout.HostRecord{ID: m.mem.ID(), Name: m.host.Name, Incarnation: m.mem.Incarnation(), State: layout.StateLive})
		if len(of.Locks) == 0 { // the entry is free
			return "", nil
		}
		m.Describe(&of.Locks[0], of.ThisHost)
		return of.Blocker(&of.Locks[0], m.host.Wall()), nil
	})
}

// readLock returns a snapshot of one lock: its entry and its slots as they are on the disk. If the
// remembered entry e has changed it reads the directory, because another host may have created the lock
// again. An unreadable entry is taken to be e.
func (m *Manager) readLock(e layout.Entry) (*lockspace.Snapshot, error) {
	if now, err := m.dir.Read(e.Lock); err == nil && now != e {
		if e, err = m.lookupOnce(e.Name, false); err != nil {
			return nil, err
		}
	}
	s := &lockspace.Snapshot{Device: m.disk.Dev.Info(), Superblock: m.disk.SB, Entries: []layout.Entry{e}}
	return s.Reread(m.disk.Dev, []int{e.Lock}, m.SlotCount(), false)
}
