// Package directory reads the directory of a lockspace, which has the names of its locks. It never
// writes. Start reading at [Directory]. On several disks copies.go determines which entries are settled.
package directory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
)

// Directory finds locks by name. The entries that it remembers may be old. If a slot shows a newer
// one, the entry is read again.
type Directory struct {
	dev   blockdev.Device
	space layout.Space

	// Shared with the same directory on other devices.
	mu      *sync.Mutex             // guards entries
	entries map[string]layout.Entry // remembered ones, by the names of their locks
}

// New returns a directory that remembers no entry. With several disks the device must have Copies.
func New(dev blockdev.Device, space layout.Space) *Directory {
	return &Directory{dev: dev, space: space, mu: new(sync.Mutex), entries: map[string]layout.Entry{}}
}

// On returns the same directory, read through another device.
func (dir *Directory) On(dev blockdev.Device) *Directory {
	return &Directory{dev: dev, space: dir.space, mu: dir.mu, entries: dir.entries}
}

// Scan is one read of the whole directory.
type Scan struct {
	Entries []layout.Entry // readable ones, including free ones
	Damaged error          // error of the first unreadable one
	Bad     []int          // lock numbers of all unreadable ones

	// Unsettled ones as their newest copies show them. They are among Bad.
	Unsettled []layout.Entry
}

// Scan reads the whole directory. The versions of the entries are left out: they do not distinguish
// locks.
func (dir *Directory) Scan() (*Scan, error) {
	g := dir.space.Geometry
	s := &Scan{}
	dev := dir.reader()
	err := lockspace.ScanRecords(dev, g.Entry(1), g.Stride, g.Locks, func(i int, sector []byte, err error) error {
		var e layout.Entry
		if err == nil {
			e, err = dir.decode(dev, sector, i+1)
		}
		e.Token, e.Sequence = 0, 0
		if err == nil {
			s.Entries = append(s.Entries, e)
			return nil
		}
		if errors.Is(err, ErrUnsettled) {
			s.Unsettled = append(s.Unsettled, e)
		}
		s.Damaged = cmp.Or(s.Damaged, err)
		s.Bad = append(s.Bad, i+1)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the lock directory: %w", err)
	}
	dir.Remember(s)
	return s, nil
}

// Find finds a name in this scan. The directory may remember another scan that began earlier.
func (s *Scan) Find(name string) (layout.Entry, bool) {
	i := slices.IndexFunc(s.Entries, func(e layout.Entry) bool { return e.Name == name })
	if i < 0 {
		return layout.Entry{}, false
	}
	return s.Entries[i], true
}

// Remember replaces the remembered entries by those of a scan. It keeps an entry that the scan
// could not read: the driver of its lock determines from the slots whether it still exists.
func (dir *Directory) Remember(s *Scan) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	maps.DeleteFunc(dir.entries, func(_ string, e layout.Entry) bool { return !slices.Contains(s.Bad, e.Lock) })
	for _, e := range slices.Backward(s.Entries) { // the first one counts, as in find
		if !e.Free() {
			dir.entries[e.Name] = e
		}
	}
}

// Read reads the entry of one lock, without its version. It returns the newest copy of an entry with
// ErrUnsettled.
func (dir *Directory) Read(lock int) (layout.Entry, error) {
	e, err := dir.ReadVersion(lock)
	e.Token, e.Sequence = 0, 0
	return e, err
}

// ReadVersion is Read with the version of the entry.
func (dir *Directory) ReadVersion(lock int) (layout.Entry, error) {
	buf := lockspace.Pool.Get(dir.space.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	dev := dir.reader()
	if err := dev.Read(buf, dir.space.Geometry.Entry(lock)); err != nil {
		return layout.Entry{}, fmt.Errorf("read the directory entry of lock %d: %w", lock, err)
	}
	return dir.decode(dev, buf, lock)
}

// reader returns the device for one read of entries.
func (dir *Directory) reader() blockdev.Device {
	if !dir.space.Several {
		return dir.dev
	}
	return NewSettling(dir.dev, dir.space.Geometry.Stride, nil)
}

// decode decodes an entry that was read from dev. It returns the newest copy with ErrUnsettled.
func (dir *Directory) decode(dev blockdev.Device, sector []byte, lock int) (layout.Entry, error) {
	e, err := dir.space.DecodeEntry(sector, lock)
	if s, ok := dev.(*Settling); ok && err == nil && !s.Settled(dir.space.Geometry.Entry(lock)) {
		err = fmt.Errorf("directory entry of lock %d: %w", lock, ErrUnsettled)
	}
	return e, err
}

func (dir *Directory) Remembered(name string) (layout.Entry, bool) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	e, ok := dir.entries[name]
	return e, ok
}

func (dir *Directory) Add(e layout.Entry) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	dir.entries[e.Name] = e
}

func (dir *Directory) Forget(e layout.Entry) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	if dir.entries[e.Name] == e {
		delete(dir.entries, e.Name)
	}
}

// Lookup finds the entry of a name, in memory or on the disk.
func (dir *Directory) Lookup(name string) (layout.Entry, error) {
	if e, ok := dir.Remembered(name); ok {
		return e, nil
	}
	s, err := dir.Scan()
	if err != nil {
		return layout.Entry{}, err
	}
	if e, ok := s.Find(name); ok {
		return e, nil
	}
	return layout.Entry{}, api.ErrNoLock
}

// Readable reports whether an entry is readable within check.ConfirmRounds reads.
func (dir *Directory) Readable(lock int) (bool, error) {
	for range check.ConfirmRounds {
		_, err := dir.Read(lock)
		if err == nil {
			return true, nil
		}
		if !lockspace.IsBadSector(err) && !Undecodable(err) {
			return false, err
		}
		time.Sleep(check.ConfirmPause)
	}
	return false, nil
}

// Undecodable reports whether the error is that of a damaged or unsettled record, not of a device.
func Undecodable(err error) bool {
	damages := []error{ErrUnsettled, layout.ErrMagic, layout.ErrVersion, layout.ErrChecksum, layout.ErrIdentity, layout.ErrField}
	return slices.ContainsFunc(damages, func(of error) bool { return errors.Is(err, of) })
}

// Listing is the list of locks in the directory.
type Listing struct {
	Locks   []ListedLock `json:"locks"`             // by name
	Damaged string       `json:"damaged,omitempty"` // why the list may be incomplete
}

// ListedLock is a lock in the directory.
type ListedLock struct {
	Name     string `json:"name"`
	Number   int    `json:"number"` // its place on the disk
	Permits  int    `json:"permits"`
	Creation uint64 `json:"creation,string"`
}

func Listed(e layout.Entry) ListedLock {
	return ListedLock{Name: e.Name, Number: e.Lock, Permits: e.Permits, Creation: e.Creation}
}

// List returns the locks of a lockspace without joining it. It returns the errors of
// FindLockspace and those of the device.
func List(dev blockdev.Device) (*Listing, error) {
	sb, _, err := lockspace.FindLockspace(dev)
	if err != nil {
		return nil, err
	}
	return New(dev, sb.Space()).List()
}

func (dir *Directory) List() (*Listing, error) {
	s, err := dir.Scan()
	if err != nil {
		return nil, err
	}
	list := &Listing{Locks: []ListedLock{}}
	if s.Damaged != nil {
		list.Damaged = s.Damaged.Error()
	}
	for _, e := range s.Entries {
		if !e.Free() {
			list.Locks = append(list.Locks, Listed(e))
		}
	}
	slices.SortFunc(list.Locks, func(a, b ListedLock) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Number-b.Number) })
	return list, nil
}
