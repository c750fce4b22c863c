package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/layout"
)

// directory finds locks by name. The entries that it remembers may be old. If a slot shows a newer
// one, the entry is read again.
type directory struct {
	dev   blockdev.Device
	space layout.Space
	*rememberedEntries
}

// rememberedEntries are entries by the names of their locks.
type rememberedEntries struct {
	mu      sync.Mutex // guards entries
	entries map[string]layout.Entry
}

func newDirectory(dev blockdev.Device, space layout.Space) *directory {
	return &directory{dev: dev, space: space, rememberedEntries: &rememberedEntries{entries: map[string]layout.Entry{}}}
}

// on returns the same directory, read through another device.
func (dir *directory) on(dev blockdev.Device) *directory {
	return &directory{dev: dev, space: dir.space, rememberedEntries: dir.rememberedEntries}
}

// scan is one read of the whole directory.
type scan struct {
	entries []layout.Entry // readable ones, including free ones
	damaged error          // error of the first unreadable one
	bad     []int          // lock numbers of all unreadable ones
}

func (dir *directory) scan() (*scan, error) {
	g := dir.space.Geometry
	s := &scan{}
	err := lockspace.ScanRecords(dir.dev, g.Entry(1), g.Stride, g.Locks, func(i int, sector []byte, err error) error {
		var e layout.Entry
		if err == nil {
			e, err = dir.space.DecodeEntry(sector, i+1)
		}
		switch {
		case err == nil:
			s.entries = append(s.entries, e)
		case s.damaged == nil:
			s.damaged = err
		}
		if err != nil {
			s.bad = append(s.bad, i+1)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the lock directory: %w", err)
	}
	dir.remember(s)
	return s, nil
}

// find finds a name in this scan. The directory may remember another scan that began earlier.
func (s *scan) find(name string) (layout.Entry, bool) {
	i := slices.IndexFunc(s.entries, func(e layout.Entry) bool { return e.Name == name })
	if i < 0 {
		return layout.Entry{}, false
	}
	return s.entries[i], true
}

// remember replaces the remembered entries by those of a scan. It keeps an entry that the scan
// could not read: the driver of its lock determines from the slots whether it still exists.
func (dir *directory) remember(s *scan) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	maps.DeleteFunc(dir.entries, func(_ string, e layout.Entry) bool { return !slices.Contains(s.bad, e.Lock) })
	for _, e := range slices.Backward(s.entries) { // the first one counts, as in find
		if !e.Free() {
			dir.entries[e.Name] = e
		}
	}
}

// read reads the entry of one lock.
func (dir *directory) read(lock int) (layout.Entry, error) {
	buf := lockspace.Pool.Get(dir.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	if err := dir.dev.Read(buf, dir.space.Geometry.Entry(lock)); err != nil {
		return layout.Entry{}, fmt.Errorf("read the directory entry of lock %d: %w", lock, err)
	}
	return dir.space.DecodeEntry(buf, lock)
}

func (dir *directory) remembered(name string) (layout.Entry, bool) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	e, ok := dir.entries[name]
	return e, ok
}

func (dir *directory) add(e layout.Entry) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	dir.entries[e.Name] = e
}

func (dir *directory) forget(e layout.Entry) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	if dir.entries[e.Name] == e {
		delete(dir.entries, e.Name)
	}
}

// lookup finds the entry of a name, in memory or on the disk.
func (dir *directory) lookup(name string) (layout.Entry, error) {
	if e, ok := dir.remembered(name); ok {
		return e, nil
	}
	s, err := dir.scan()
	if err != nil {
		return layout.Entry{}, err
	}
	if e, ok := s.find(name); ok {
		return e, nil
	}
	return layout.Entry{}, api.ErrNoLock
}

// lookupNow finds the entry of a name as it is on the disk now. It reads again up to slotTries
// times if an entry is unreadable, because that may be being written.
func (m *Manager) lookupNow(ctx context.Context, name string) (e layout.Entry, err error) {
	for try := range slotTries {
		if e, err = m.lookupOnce(name, try == slotTries-1); !errors.Is(err, api.ErrDamaged) {
			return e, err
		}
		if err := retry.Pause(ctx, m.disk.retry()); err != nil {
			return e, context.Cause(ctx)
		}
	}
	return e, err
}

// lookupOnce finds the entry with one read. certain means that no host can be writing an entry that
// is unreadable now.
func (m *Manager) lookupOnce(name string, certain bool) (layout.Entry, error) {
	if e, ok := m.dir.remembered(name); ok {
		if now, err := m.dir.read(e.Lock); err == nil && now == e {
			return e, nil
		}
	}
	s, err := m.dir.scan()
	if err != nil {
		return layout.Entry{}, err
	}
	e, ok := s.find(name)
	switch {
	case ok:
		return e, nil
	case s.damaged != nil:
		m.complainOfEntries(s.bad, certain)
		return e, fmt.Errorf("%w: lock %q is not in its readable part: %w", api.ErrDamaged, name, s.damaged)
	}
	return e, fmt.Errorf("%w: %q", api.ErrNoLock, name)
}

// lock returns this host's part in a lock. It creates the lock on first use.
func (m *Manager) lock(ctx context.Context, req Request) (*Lock, error) {
	if e, ok := m.dir.remembered(req.Name); ok && agree(e, req.Permits) != nil {
		m.dir.forget(e) // it may have been removed and created with other permits
	}
	e, err := m.dir.lookup(req.Name)
	if errors.Is(err, api.ErrNoLock) {
		e, _, err = m.create(ctx, req.Name, req.Permits)
	}
	if err != nil {
		return nil, err
	}
	if err := agree(e, req.Permits); err != nil {
		return nil, err
	}
	lk, err := m.attach(e)
	if errors.Is(err, errSuperseded) {
		m.dir.forget(e)
	}
	return lk, err
}

// attach returns the driver of an entry's lock and starts one if needed. It returns errSuperseded
// if the entry is older than the one in use.
func (m *Manager) attach(e layout.Entry) (*Lock, error) { return m.attachTo(e, false) }

// attachTo also returns the driver of a lock in quarantine, if repair is set: it repairs the own
// slot.
func (m *Manager) attachTo(e layout.Entry, repair bool) (*Lock, error) {
	for {
		lk, err := m.attachOnce(e, repair)
		if err != nil || lk.Entry == e {
			return lk, err
		}
		if lk.Entry.Creation > e.Creation {
			return nil, errSuperseded
		}
		// Another entry used these slots until now. Two drivers must not write one slot.
		lk.shut(errSuperseded)
		<-lk.done
	}
}

func (m *Manager) attachOnce(e layout.Entry, repair bool) (*Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.mem.Lost():
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	default:
	}
	if m.closing {
		return nil, errStopped
	}
	lk := m.locks[e.Lock]
	if lk != nil && !lk.quarantined {
		return lk, nil
	}
	err := m.disk.quarantined(e.Lock)
	if err != nil && !repair {
		return nil, err
	}
	if lk == nil {
		lk = m.newLock(e)
		m.start(lk)
	}
	lk.quarantined = err != nil
	return lk, nil
}

// newLock returns this host's part in a lock that has no driver yet.
func (m *Manager) newLock(e layout.Entry) *Lock {
	id := m.mem.ID()
	lk := &Lock{
		mgr: m, Entry: e, wake: make(chan struct{}, 1), tasks: make(chan task), done: make(chan struct{}),
		m: bakery.New(bakery.Config{
			Host: id, Incarnation: m.mem.Incarnation(), Creation: e.Creation,
			Permits: max(e.Permits, 1), // a removed lock has none; its slot is attached for repair
			Clock:   m.clockNumber(),
		}),
		slots:  newSlotStore(m.disk.Dev, m.disk.SB.Space(), e.Lock, id),
		driver: newDriverMutex(),
	}
	lk.slots.mine, lk.slots.made = m.mem.Incarnation(), e.Creation
	lk.slots.part.Store(m.mem.Resumed()) // the previous bakeryd may have left the slot in any state
	lk.dev = lockDevice{Device: m.disk.Dev, watch: m.disk.Stalls, clock: m.disk.Clock, lock: e.Lock, name: e.Name, part: &lk.slots.part}
	lk.slots.dev = lk.dev
	lk.publishTimer = time.AfterFunc(math.MaxInt64, lk.signal)
	lk.timer = time.NewTimer(math.MaxInt64)
	lk.driver.Lock() // held by the driver from its start
	_, lk.hostTableChanged = m.mem.LeaseLeft()
	return lk
}

// start starts the driver of a lock. Called with mu held.
func (m *Manager) start(lk *Lock) {
	m.locks[lk.Entry.Lock] = lk
	m.drivers.Go(lk.drive)
}

// drop removes a driver that ends.
func (m *Manager) drop(lk *Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[lk.Entry.Lock] == lk {
		delete(m.locks, lk.Entry.Lock)
	}
}

// readable reports whether an entry is readable within check.Rounds reads.
func (dir *directory) readable(lock int) (bool, error) {
	for range check.ConfirmRounds {
		_, err := dir.read(lock)
		if err == nil {
			return true, nil
		}
		if !lockspace.IsBadSector(err) && !undecodable(err) {
			return false, err
		}
		time.Sleep(check.ConfirmPause)
	}
	return false, nil
}

// undecodable reports whether the error is that of a damaged record, not of a device.
func undecodable(err error) bool {
	for _, of := range []error{layout.ErrMagic, layout.ErrVersion, layout.ErrChecksum, layout.ErrIdentity, layout.ErrField} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
