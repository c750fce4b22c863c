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

// blockerEvery is the minimum interval of reading the slots of a lock for its blocker.
const blockerEvery = 200 * time.Millisecond

// blockerReads are the reads of slots for blockers, one a lock at most, because hundreds of clients may
// ask at a time. A read also answers the calls of the next blockerEvery.
type blockerReads struct {
	mu     sync.Mutex // guards byName
	byName map[string]*blockerRead
}

type blockerRead struct {
	done     chan struct{} // closed when the fields below are set
	snapshot *lockspace.Snapshot
	err      error
}

// begin returns the current read for a name, or starts one with read.
func (b *blockerReads) begin(name string, read func() (*lockspace.Snapshot, error)) *blockerRead {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.byName[name]
	if r != nil {
		return r
	}
	if b.byName == nil {
		b.byName = map[string]*blockerRead{}
	}
	r = &blockerRead{done: make(chan struct{})}
	b.byName[name] = r
	go func() {
		r.snapshot, r.err = read()
		close(r.done)
		time.AfterFunc(blockerEvery, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.byName, name)
		})
	}()
	return r
}

// Blocker returns in words what a client that requests a lock waits for; "" if the lock is free, or the
// disk does not show it yet. It reads the slots of the lock, and of the hosts it knows what it read
// before.
//
// It returns ErrInvalid, ErrNoLock, ErrDamaged, ErrUnavailable, an error of the device, or the cause of
// ctx's end.
func (m *Manager) Blocker(ctx context.Context, name string) (string, error) {
	if err := layout.ValidateLockName(name); err != nil {
		return "", fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	r := m.blockers.begin(name, func() (*lockspace.Snapshot, error) { return m.readLock(name) })
	return runDetached(ctx, m, func() (string, error) {
		select {
		case <-r.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if r.err != nil {
			return "", r.err
		}
		hosts, _ := m.mem.Known()
		of := report.BuildLock(r.snapshot, &report.Knowledge{Now: m.disk.Clock.Now(), Times: m.disk.Times(), Hosts: hosts},
			layout.HostRecord{ID: m.mem.ID(), Name: m.host.Name, Incarnation: m.mem.Incarnation(), State: layout.StateLive})
		if len(of.Locks) == 0 { // the entry is free
			return "", nil
		}
		m.Describe(&of.Locks[0], of.ThisHost)
		return of.Blocker(&of.Locks[0], m.host.Wall()), nil
	})
}

// readLock returns a snapshot of one lock: its entry, and its slots as they are on the disk.
func (m *Manager) readLock(name string) (*lockspace.Snapshot, error) {
	e, err := m.dir.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	s := &lockspace.Snapshot{Device: m.disk.Dev.Info(), Superblock: m.disk.SB, Entries: []layout.Entry{e}}
	return s.Reread(m.disk.Dev, []int{e.Lock}, m.SlotCount(), false)
}
