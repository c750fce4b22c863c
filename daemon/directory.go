package daemon

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
func (d *Daemon) lookupNow(ctx context.Context, name string) (e layout.Entry, err error) {
	for try := range slotTries {
		if e, err = d.lookupOnce(name, try == slotTries-1); !errors.Is(err, api.ErrDamaged) {
			return e, err
		}
		if err := retry.Pause(ctx, d.retry()); err != nil {
			return e, context.Cause(ctx)
		}
	}
	return e, err
}

// lookupOnce finds the entry with one read. certain means that no host can be writing an entry that
// is unreadable now.
func (d *Daemon) lookupOnce(name string, certain bool) (layout.Entry, error) {
	if e, ok := d.dir.remembered(name); ok {
		if now, err := d.dir.read(e.Lock); err == nil && now == e {
			return e, nil
		}
	}
	s, err := d.dir.scan()
	if err != nil {
		return layout.Entry{}, err
	}
	e, ok := s.find(name)
	switch {
	case ok:
		return e, nil
	case s.damaged != nil:
		d.complainOfEntries(s.bad, certain)
		return e, fmt.Errorf("%w: lock %q is not in its readable part: %w", api.ErrDamaged, name, s.damaged)
	}
	return e, fmt.Errorf("%w: %q", api.ErrNoLock, name)
}

// lock returns this host's part in a lock. It creates the lock on first use.
func (d *Daemon) lock(ctx context.Context, req Request) (*lock, error) {
	if e, ok := d.dir.remembered(req.Name); ok && agree(e, req.Permits) != nil {
		d.dir.forget(e) // it may have been removed and created with other permits
	}
	e, err := d.dir.lookup(req.Name)
	if errors.Is(err, api.ErrNoLock) {
		e, _, err = d.create(ctx, req.Name, req.Permits)
	}
	if err != nil {
		return nil, err
	}
	if err := agree(e, req.Permits); err != nil {
		return nil, err
	}
	lk, err := d.attach(e)
	if errors.Is(err, errSuperseded) {
		d.dir.forget(e)
	}
	return lk, err
}

// attach returns the driver of an entry's lock and starts one if needed. It returns errSuperseded
// if the entry is older than the one in use.
func (d *Daemon) attach(e layout.Entry) (*lock, error) { return d.attachTo(e, false) }

// attachTo also returns the driver of a lock in quarantine, if repair is set: it repairs the own
// slot.
func (d *Daemon) attachTo(e layout.Entry, repair bool) (*lock, error) {
	for {
		lk, err := d.attachOnce(e, repair)
		if err != nil || lk.entry == e {
			return lk, err
		}
		if lk.entry.Creation > e.Creation {
			return nil, errSuperseded
		}
		// Another entry used these slots until now. Two drivers must not write one slot.
		lk.shut(errSuperseded)
		<-lk.done
	}
}

func (d *Daemon) attachOnce(e layout.Entry, repair bool) (*lock, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.mem.Lost():
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, api.ErrLeaseLost)
	default:
	}
	if d.closing {
		return nil, errStopped
	}
	lk := d.locks[e.Lock]
	if lk != nil && !lk.quarantined {
		return lk, nil
	}
	err := d.quarantined(e.Lock)
	if err != nil && !repair {
		return nil, err
	}
	if lk == nil {
		lk = d.newLock(e)
		d.start(lk)
	}
	lk.quarantined = err != nil
	return lk, nil
}

// newLock returns this host's part in a lock that has no driver yet.
func (d *Daemon) newLock(e layout.Entry) *lock {
	id := d.mem.ID()
	lk := &lock{
		d: d, entry: e, wake: make(chan struct{}, 1), tasks: make(chan task), done: make(chan struct{}),
		m: bakery.New(bakery.Config{
			Host: id, Incarnation: d.mem.Incarnation(), Creation: e.Creation,
			Permits: max(e.Permits, 1), // a removed lock has none; its slot is attached for repair
			Clock:   d.clockNumber(),
		}),
		slots:  newSlotStore(d.dev, d.sb.Space(), e.Lock, id),
		driver: newDriverMutex(),
	}
	lk.slots.mine, lk.slots.made = d.mem.Incarnation(), e.Creation
	lk.slots.part.Store(d.mem.Resumed()) // the previous bakeryd may have left the slot in any state
	lk.dev = lockDevice{Device: d.dev, watch: d.stalls, clock: d.clock, lock: e.Lock, name: e.Name, part: &lk.slots.part}
	lk.slots.dev = lk.dev
	lk.publishTimer = time.AfterFunc(math.MaxInt64, lk.signal)
	lk.timer = time.NewTimer(math.MaxInt64)
	lk.driver.Lock() // held by the driver from its start
	_, lk.hostTableChanged = d.mem.LeaseLeft()
	return lk
}

// start starts the driver of a lock. Called with mu held.
func (d *Daemon) start(lk *lock) {
	d.locks[lk.entry.Lock] = lk
	d.drivers.Go(lk.drive)
}

// drop removes a driver that ends.
func (d *Daemon) drop(lk *lock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[lk.entry.Lock] == lk {
		delete(d.locks, lk.entry.Lock)
	}
}
