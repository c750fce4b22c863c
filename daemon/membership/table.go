package membership

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// errReplaced is returned when the device does not hold the lockspace that was joined any more.
var errReplaced = errors.New("the lockspace on the device is another one, or gone")

// readTable reads the superblocks and the adjacent records of the first hosts, in one request
// unless they are many.
func (mb *Member) readTable(a lease.ReadTable) {
	mb.begun.Store(int64(mb.cfg.Clock.Now()))
	records := make([]lease.Record, a.Hosts)
	if mb.set != nil {
		mb.useList()
	}
	epoch, err := mb.readRows(records, a.Counted)
	if err != nil && mb.overwritten() {
		err = fmt.Errorf("%w: %w", errReplaced, err)
	}
	mb.returned(&mb.reading)
	switch {
	case errors.Is(err, errReplaced):
		mb.LoseFor(err)
	case err != nil:
		mb.event(mb.m.ReadFailed) // before logging, which may block
		mb.failed("reading the host table failed, retrying", err)
	default:
		mb.event(func(now time.Duration) []lease.Action {
			mb.m.Lists(mb.epoch, epoch)
			actions := mb.m.TableRead(now, records)
			if id := mb.m.ID(); id != 0 && id <= len(records) && mb.m.Deadline() == 0 {
				mb.found = records[id-1].HostRecord
			}
			return actions
		})
		if mb.set != nil {
			mb.followList(epoch, records)
		}
		mb.spareRenewed()
		mb.noteTable(records)
	}
}

// noteTable logs the first host that must rewrite its lost record, and records changes of the hosts.
func (mb *Member) noteTable(records []lease.Record) {
	if !mb.noting.CompareAndSwap(false, true) {
		return // a log blocks: a later read records the changes
	}
	defer mb.noting.Store(false)
	host := 1 + slices.IndexFunc(records, func(r lease.Record) bool { return r.Err == lease.ErrZeroed })
	if host > 0 && mb.zeroed.Allow() {
		mb.cfg.Log.Warn("a host record is all zeroes, waiting until its host rewrites it: start bakeryd there if it does not run",
			"host", host, "err", lease.ErrZeroed)
	}
	hosts, _ := mb.Known()
	mb.noteHosts(hosts)
	mb.noteSilence(hosts)
}

// superblocks is the number of those before the host records.
const superblocks = 2

// readRows reads the superblocks and fills records, from host 1 on. It returns the epoch of the newest list
// of member disks, errReplaced, or why nothing could be read.
func (mb *Member) readRows(records []lease.Record, counted []int) (epoch uint64, err error) {
	dev, copies := mb.cfg.Dev, (*scan)(nil)
	if mb.set != nil {
		copies = mb.newScan(records, counted)
		dev = copies
	}
	var other, unread error
	readable := false
	err = lockspace.ScanRecords(dev, 0, mb.cfg.SB.Geometry.Stride, superblocks+len(records), func(i int, sector []byte, err error) error {
		readable, unread = readable || err == nil, cmp.Or(unread, err)
		switch {
		case !readable && i+1 == lockspace.ScanChunk/mb.cfg.SB.Geometry.Stride: // do not read all of a dead path
			return unread
		case i >= superblocks && copies != nil:
			copies.complete(i - superblocks)
		case i >= superblocks:
			r := &records[i-superblocks]
			if *r = (lease.Record{Err: err}); err == nil {
				r.HostRecord, r.Err = mb.cfg.SB.Space().DecodeHost(sector, i-superblocks+1)
			}
		case err != nil: // not known: the lease runs out if nothing else can be read
		case copies != nil && !copies.replaced(i):
		case i == 0:
			other = mb.otherLockspace(sector, i)
		case other != nil && mb.otherLockspace(sector, i) != nil: // format wipes or replaces both
			return other
		}
		return nil
	})
	if copies != nil {
		copies.alone.Wait()
	}
	if err == nil && !readable {
		err = unread
	}
	if err != nil || copies == nil {
		return 0, err
	}
	epoch, err = copies.list()
	copies.finish()
	if copies.live { // its lease does not wait for that
		err = nil
	}
	return epoch, err
}

// overwritten reports whether a majority of the member disks has no superblock of the lockspace that was joined. They
// may be down for that before a read shows it.
func (mb *Member) overwritten() bool {
	n := 0
	for _, m := range lockspace.MemberDisks(mb.cfg.Dev) {
		if m.Overwritten() {
			n++
		}
	}
	return n > mb.cfg.Lease.Members/2
}

// otherLockspace returns errReplaced unless a superblock is that of the lockspace that was joined.
func (mb *Member) otherLockspace(sector []byte, copy int) error {
	sb, err := layout.DecodeSuperblock(sector, copy)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errReplaced, err)
	case sb.UUID != mb.cfg.SB.UUID:
		return fmt.Errorf("%w: lockspace %s, was %s", errReplaced, sb.UUID, mb.cfg.SB.UUID)
	}
	return nil
}

// noteSilence reports hosts that have fallen silent, and those that renew again. Called with noting
// set.
func (mb *Member) noteSilence(hosts []lease.Host) {
	for i := range hosts {
		h := &hosts[i]
		silent := &mb.noted[i].silent
		switch was, is := *silent == h.Incarnation && h.Incarnation != 0, i+1 != mb.ID() && h.Overdue(mb.times()); {
		case is && !was:
			*silent = h.Incarnation
			mb.noteOther(events.AtRisk, i+1, h.Name, h.Incarnation, "silent for "+(h.Read-h.Since).Round(time.Millisecond).String())
			mb.cfg.Log.Warn("host is silent", "host", i+1, "host_name", h.Name, "silent", (h.Read - h.Since).Round(time.Millisecond))
		case was && !is:
			*silent = 0
			if !h.Gone {
				mb.noteOther(events.Seen, i+1, h.Name, h.Incarnation, "")
				mb.cfg.Log.Info("host is seen again", "host", i+1, "host_name", h.Name)
			}
		}
	}
}

// writeRecord writes the own record. The first write of an id takes the lock file that excludes
// other processes of this machine. It also registers the key by which this host can be fenced.
func (mb *Member) writeRecord(r layout.HostRecord) {
	err := mb.cfg.Identity.TakeLockFile(r.ID)
	if err == nil && mb.cfg.Take != nil {
		mb.cfg.Take(r.ID)
	}
	if err == nil {
		err = mb.register(r.ID, r.Incarnation)
	}
	if err == nil && mb.set != nil && r.State == layout.StateLeft {
		err = mb.beforeLeft()
	}
	if err != nil || r.State == layout.StateLive && !mb.awaitLocks() {
		mb.returned(&mb.writing)
		mb.event(mb.m.WriteFailed)
		if err != nil {
			mb.LoseFor(err)
		}
		return
	}
	mb.keepTerm() // with the write in flight (NOTE-FIRST)
	r.PRKey = mb.cfg.Fence.Key
	buf := lockspace.Pool.Get(mb.cfg.SB.Geometry.Stride)
	defer lockspace.Pool.Put(buf)
	var members []int
	if err = mb.cfg.SB.Space().EncodeHost(buf, r); err == nil && mb.set != nil {
		members, err = mb.write(buf, r)
	} else if err == nil {
		err = mb.cfg.Dev.Write(buf, mb.cfg.SB.Geometry.Host(r.ID))
	}
	mb.returned(&mb.writing)
	if err != nil {
		mb.event(mb.m.WriteFailed) // before logging, which may block
		mb.failed("writing the host record failed, retrying", err)
		return
	}
	mb.trouble.Store(nil)
	mb.event(func(now time.Duration) []lease.Action { return mb.m.WrittenOn(now, members) })
}

// failed records a failed IO, and logs it at most once per warnEvery.
func (mb *Member) failed(message string, err error) {
	mb.cfg.Tally.RenewalFailures.Add(1)
	if before := mb.trouble.Swap(&ioTrouble{err: err, at: time.Now()}); before != nil && before.at.Add(warn.Every).After(time.Now()) {
		mb.trouble.Store(&ioTrouble{err: err, at: before.at})
		return
	}
	attrs := []any{"err", err}
	// else the lease has not begun, or is over
	if left := mb.Moments().Deadline - mb.cfg.Clock.Now(); left > 0 {
		attrs = append(attrs, "lease_left", left.Round(time.Millisecond))
	}
	mb.cfg.Log.Warn(message, attrs...)
}

// ioTrouble is the reason why the lease is not renewed.
type ioTrouble struct {
	err error
	at  time.Time // of the last report
}
