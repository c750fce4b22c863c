package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// createRequest is the body of POST /v1/create.
type createRequest struct {
	Name    string `json:"name"`
	Permits int    `json:"permits"` // limit of exclusive holders; 0: 1
}

func (c *createRequest) lockName() string { return c.Name }

// createAnswer describes the lock.
type createAnswer struct {
	LockEntry
	Created bool `json:"created"` // false if it existed already
}

// removeRequest is the body of POST /v1/remove.
type removeRequest struct {
	Name      string `json:"name"`
	TimeoutMS int64  `json:"timeout_ms"` // 0 if none
	NonBlock  bool   `json:"nonblock"`   // refuse as busy instead of waiting
}

func (r *removeRequest) lockName() string { return r.Name }

// removeAnswer names the removed lock.
type removeAnswer struct {
	Name string `json:"name"`
}

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

func lockEntry(e layout.Entry) LockEntry {
	return LockEntry{Name: e.Name, Lock: e.Lock, Permits: e.Permits, Creation: e.Creation}
}

// Locks returns the locks of the directory. It returns ErrUnavailable, the errors of the device, or
// the cause of ctx's end.
func (d *Daemon) Locks(ctx context.Context) (*LockList, error) {
	return patiently(ctx, d, func() (*LockList, error) { return d.dir.list() })
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
			list.Locks = append(list.Locks, lockEntry(e))
		}
	}
	slices.SortFunc(list.Locks, func(a, b LockEntry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Lock-b.Lock) })
	return list, nil
}

func (s *Server) create(d *Daemon, w http.ResponseWriter, r *http.Request) {
	var body createRequest
	err := decode(r, &body)
	var e layout.Entry
	var created bool
	if err == nil {
		e, created, err = d.Create(r.Context(), body.Name, body.Permits)
	}
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, createAnswer{lockEntry(e), created})
}

func (s *Server) remove(d *Daemon, w http.ResponseWriter, r *http.Request) {
	var body removeRequest
	err := decode(r, &body)
	if err == nil && body.TimeoutMS < 0 {
		err = fmt.Errorf("%w: timeout_ms %d, want 0 or more", api.ErrInvalid, body.TimeoutMS)
	}
	if err == nil {
		ctx := r.Context()
		if body.TimeoutMS > 0 {
			limit := time.Duration(min(body.TimeoutMS, maxTimeout.Milliseconds())) * time.Millisecond
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, api.ErrTimeout)
			defer cancel()
		}
		err = d.Remove(ctx, body.Name, body.NonBlock)
	}
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, removeAnswer{Name: body.Name})
}

func (s *Server) locks(d *Daemon, w http.ResponseWriter, r *http.Request) {
	list, err := d.Locks(r.Context())
	if err != nil {
		failCall(w, err)
		return
	}
	writeJSON(w, list)
}

// failCall answers a call that is not a stream with an error. Here a busy lock is an error status;
// in a stream it is not.
func failCall(w http.ResponseWriter, err error) {
	e := api.ErrorOf(err)
	status := e.Status()
	if status == http.StatusOK {
		status = http.StatusConflict
	}
	writeError(w, status, e)
}
