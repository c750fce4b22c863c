package locks

import (
	"cmp"
	"context"
	"slices"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// LockList is the list of locks in the directory.
type LockList struct {
	Locks   []LockEntry `json:"locks"`             // by name
	Damaged string      `json:"damaged,omitempty"` // why the list may be incomplete
}

// LockEntry is a lock in the directory.
type LockEntry struct {
	Name     string `json:"name"`
	Lock     int    `json:"lock"`
	Permits  int    `json:"permits"`
	Creation uint64 `json:"creation,string"`
}

func ListEntry(e layout.Entry) LockEntry {
	return LockEntry{Name: e.Name, Lock: e.Lock, Permits: e.Permits, Creation: e.Creation}
}

// Locks returns the locks of the directory. It returns ErrUnavailable, the errors of the device, or
// the cause of ctx's end.
func (m *Manager) Locks(ctx context.Context) (*LockList, error) {
	return runDetached(ctx, m, func() (*LockList, error) { return m.dir.list() })
}

// ListLocks returns the locks of a lockspace without joining it. It returns the errors of
// FindLockspace and those of the device.
func ListLocks(dev blockdev.Device) (*LockList, error) {
	sb, _, err := lockspace.FindLockspace(dev)
	if err != nil {
		return nil, err
	}
	return newDirectory(dev, sb.Space()).list()
}

func (dir *directory) list() (*LockList, error) {
	s, err := dir.scan()
	if err != nil {
		return nil, err
	}
	list := &LockList{Locks: []LockEntry{}}
	if s.damaged != nil {
		list.Damaged = s.damaged.Error()
	}
	for _, e := range s.entries {
		if !e.Free() {
			list.Locks = append(list.Locks, ListEntry(e))
		}
	}
	slices.SortFunc(list.Locks, func(a, b LockEntry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Lock-b.Lock) })
	return list, nil
}
