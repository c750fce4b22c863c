package daemon

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/boottime"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// errReplaced is returned when the device no longer holds the lockspace that was joined.
var errReplaced = errors.New("the lockspace on the device is another one, or gone")

// readTable reads the superblocks and the host table, which lie together, in
// one request.
func (mb *member) readTable() {
	defer mb.overdue("reading the host table")()
	mb.begun.Store(int64(boottime.Now()))
	g := mb.space.Geometry
	buf := pool.Get(int(g.Host(g.Hosts)) + g.Stride)
	defer pool.Put(buf)
	errs, err := readRecords(mb.dev, buf, 0, g.Stride)
	if err != nil {
		mb.event(mb.m.ReadFailed) // first: a log may block
		mb.failed("reading the host table failed, retrying", err)
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
	mb.noteSilence()
}

// noteSilence reports who has fallen silent, and who is back.
func (mb *member) noteSilence() {
	mb.noting.Lock()
	defer mb.noting.Unlock()
	hosts, _ := mb.known()
	mb.noteHosts(hosts)
	t := lease.Times{Lease: mb.sb.Lease}
	for i := range hosts {
		h := &hosts[i]
		switch was, is := mb.silent[i+1] == h.Incarnation && h.Incarnation != 0, i+1 != mb.id() && h.Overdue(t); {
		case is && !was:
			mb.silent[i+1] = h.Incarnation
			mb.noteOther(events.AtRisk, i+1, h, "silent for "+(h.Read-h.Since).Round(time.Millisecond).String())
			mb.log.Warn("host is silent", "silent_host_id", i+1, "silent_host_name", h.Name, "silent_for", (h.Read - h.Since).Round(time.Millisecond))
		case was && !is:
			delete(mb.silent, i+1)
			if !h.Gone {
				mb.noteOther(events.Seen, i+1, h, "")
				mb.log.Info("host is seen again", "seen_host_id", i+1, "seen_host_name", h.Name)
			}
		}
	}
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
// file that keeps other processes of this machine from it, and registers the
// key by which this host can be fenced.
func (mb *member) writeRecord(r layout.HostRecord) {
	defer mb.overdue("writing the host record")()
	err := mb.ids.claim(r.ID)
	if err == nil {
		err = mb.fencing.register(r.ID, r.Incarnation)
	}
	if err != nil {
		mb.event(func(now time.Duration) []lease.Action {
			return append(mb.m.WriteFailed(now), mb.m.Lose(now, err)...)
		})
		return
	}
	mb.keepTerm() // with a write under way
	r.PRKey = mb.fencing.key
	buf := pool.Get(mb.space.Geometry.Stride)
	defer pool.Put(buf)
	if err = mb.space.EncodeHost(buf, r); err == nil {
		err = mb.dev.Write(buf, mb.space.Geometry.Host(r.ID))
	}
	if err != nil {
		mb.event(mb.m.WriteFailed) // first: a log may block
		mb.failed("writing the host record failed, retrying", err)
		return
	}
	mb.trouble.Store(nil)
	mb.event(mb.m.Written)
}

// failed reports an IO that did, now and then, and notes why.
func (mb *member) failed(message string, err error) {
	if before := mb.trouble.Swap(&ioTrouble{err: err, at: time.Now()}); before != nil && before.at.Add(warnEvery).After(time.Now()) {
		mb.trouble.Store(&ioTrouble{err: err, at: before.at})
		return
	}
	mb.log.Warn(message, "lease_left", (mb.moments().deadline - boottime.Now()).Round(time.Millisecond), "err", err)
}

// ioTrouble is why the lease is not renewed.
type ioTrouble struct {
	err error
	at  time.Time // of the last report
}

// overdue reports IO that takes far longer than a lease has time for, while it
// hangs and when it has returned. It is to be called when the IO has.
func (mb *member) overdue(what string) (returned func()) {
	since, reported := time.Now(), atomic.Bool{}
	t := time.AfterFunc(2*(lease.Times{Lease: mb.sb.Lease}).Budget(), func() {
		reported.Store(true)
		mb.log.Error("IO hangs", "device", mb.dev.Info().Path, "what", what)
	})
	return func() {
		t.Stop()
		if reported.Load() {
			mb.log.Warn("IO that hung has returned", "device", mb.dev.Info().Path, "what", what, "took", time.Since(since).Round(time.Millisecond))
		}
	}
}
