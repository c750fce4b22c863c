// Package memberdisks opens the member disks of a lockspace on several for one host, locks there what the host
// writes, and reports the disks that are lost, hang, are back or were replaced. It knows no lease and no lock.
package memberdisks

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/warn"
	"github.com/bakeryd/bakeryd/layout"
)

// Disks are the disks of a lockspace on several, for one host.
type Disks struct {
	log      *slog.Logger
	events   *events.Log // nil if none
	identity hostid.Options

	mu     sync.Mutex // guards the fields below
	sb     layout.Superblock
	host   int // id of this host; 0 if none was chosen yet
	opened map[layout.UUID]openedDisk
	set    *lockspace.Disks // nil until all are opened
	keys   fence.Admitter   // registers the key of this host; nil if none
	noted  []string         // state in the log, by position: see report.Disk
	why    []string         // reason in the log, by position, without numbers
	again  warn.Limiter     // for reasons that change
	listed layout.Members   // in the log
}

// New returns the disks of a host, before they are opened.
func New(log *slog.Logger, events *events.Log, identity hostid.Options) *Disks {
	return &Disks{log: log, events: events, identity: identity}
}

// openedDisk is a disk as it was opened last for a position. One that was replaced may be opened after the
// disk that replaced it.
type openedDisk struct {
	lockspace.Disk
	position int
	file     *os.File // see [hostid.Options.KeepDisk]; the disk closes it; nil if it is simulated
}

// Open opens the disks at paths. A lockspace on one disk has nothing else to do with d.
func (d *Disks) Open(paths []string, o lockspace.DiskOptions) (blockdev.Device, error) {
	o.Lock, o.InFlight, o.Kept, o.Check, o.Changed = d.Lock, d.inFlight, d.identity.KeptDisks, d.check, d.note
	o.LeftOut = func(path string, reason error) { d.log.Warn("disk is not used", "device", path, "err", reason) }
	dev, sb, _, err := lockspace.OpenDisks(paths, o)
	if err != nil {
		return nil, err
	}
	if set, several := dev.(*lockspace.Disks); several {
		d.mu.Lock()
		d.sb, d.set, d.noted, d.listed = sb, set, slices.Repeat([]string{"up"}, sb.Members.Positions), sb.Members
		d.why = make([]string, sb.Members.Positions)
		d.mu.Unlock()
		if v := sb.Members.Vacant(); v != 0 {
			d.log.Warn("position of a member disk is vacant", "disk", v, "remedy", set.MemberDisks()[v-1].Remedy())
		}
		d.note()
	}
	return dev, nil
}

// Lock locks what this host writes on a member that was opened, once the host is known. That fails while
// an earlier term has a request in flight there, which could land over later ones (FIFO).
func (d *Disks) Lock(position int, disk lockspace.Disk, sb layout.Superblock) (err error) {
	at, id := openedDisk{Disk: disk, position: position}, sb.Members.Disks[position]
	if at.file, err = d.identity.KeepDisk(disk, sb.UUID, id); err != nil {
		return err
	}
	d.mu.Lock()
	if d.opened == nil {
		d.opened = map[layout.UUID]openedDisk{}
	}
	d.opened[id] = at
	host := d.host
	d.mu.Unlock()
	return at.lockOwn(sb, host)
}

func (at openedDisk) lockOwn(sb layout.Superblock, host int) error {
	if host == 0 {
		return nil
	}
	if err := at.Lock(sb.Geometry.Host(host), int64(sb.Geometry.Stride)); err != nil {
		return err
	}
	return hostid.LockDisk(at.file, host)
}

// inFlight reports whether an earlier term may have a request of this host in flight to a disk.
func (d *Disks) inFlight(disk layout.UUID) bool {
	d.mu.Lock()
	host, at, sb := d.host, d.opened[disk], d.sb
	d.mu.Unlock()
	return host != 0 && d.identity.InFlight(at.file, sb.UUID, disk, host)
}

// Take locks the record of this host on all members, before anything is written. A member where that
// fails is not used until it succeeds.
func (d *Disks) Take(host int) {
	d.mu.Lock()
	set, sb, opened := d.set, d.sb, maps.Clone(d.opened)
	known := set == nil || d.host == host
	d.host = host
	d.mu.Unlock()
	if known {
		return
	}
	list := set.Superblock().Members
	for id, disk := range opened {
		if in := list.Disks[disk.position]; in != id && !in.IsZero() {
			continue // it was replaced, and is closed
		}
		if err := disk.lockOwn(sb, host); err != nil {
			set.Recheck(disk.position, err)
		}
	}
}

// check returns an error if a member cannot be locked, or if other hosts could not fence this one there.
func (d *Disks) check(position int, dev blockdev.Device) error {
	d.mu.Lock()
	set, sb, host, keys, opened := d.set, d.sb, d.host, d.keys, maps.Clone(d.opened)
	d.mu.Unlock()
	if host != 0 && set != nil {
		for _, at := range opened {
			if at.Disk == dev {
				if err := at.lockOwn(sb, host); err != nil {
					return err
				}
			}
		}
	}
	if keys == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), admitWithin)
	defer cancel()
	return keys.Admit(ctx, position, diskOf(dev))
}

// admitWithin limits the time that the disks may take to register a key on one of them.
const admitWithin = 30 * time.Second

func diskOf(dev blockdev.Device) fence.Disk {
	info := dev.Info()
	return fence.Disk{Path: info.Path, Name: info.Disk()}
}

// AdmitBy makes check ask whether other hosts can fence this one on a member.
func (d *Disks) AdmitBy(keys fence.Admitter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = keys
}

// Disks implements fence.Members.
func (d *Disks) Disks() []fence.Disk {
	d.mu.Lock()
	set, opened := d.set, maps.Clone(d.opened)
	d.mu.Unlock()
	members := set.MemberDisks()
	disks := make([]fence.Disk, len(members))
	for i, m := range members {
		if at, ok := opened[m.UUID]; ok && m.State == mirror.Up {
			disks[i] = diskOf(at)
		}
	}
	return disks
}

// Has implements fence.Members.
func (d *Disks) Has(position int, disk fence.Disk) bool {
	d.mu.Lock()
	at, ok := d.opened[d.set.Superblock().Members.Disks[position]]
	d.mu.Unlock()
	return ok && diskOf(at) == disk
}

// Refuse implements fence.Members.
func (d *Disks) Refuse(position int, why error) {
	d.mu.Lock()
	set := d.set
	d.mu.Unlock()
	set.Recheck(position, why)
}

// WatchEvery is how often a member is looked at that may hang: the set does not announce that.
const WatchEvery = time.Second

// Watch calls note until a channel is closed.
func (d *Disks) Watch(until <-chan struct{}) {
	for {
		select {
		case <-time.After(WatchEvery):
			d.note()
		case <-until:
			return
		}
	}
}

// note reports the members that were replaced, those that are lost or hang, and those that are back.
func (d *Disks) note() {
	for _, say := range d.changes() {
		say()
	}
}

// changes returns functions that report the members whose state changed since the last call.
func (d *Disks) changes() (says []func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.set == nil {
		return nil
	}
	says = d.replaced()
	disks, up := d.set.MemberDisks(), 0
	reports := report.DisksOf(disks)
	for _, r := range reports {
		if r.Up() {
			up++
		}
	}
	for i, m := range disks {
		state, name, err := reports[i].State, fmt.Sprintf("disk %d (%s)", m.Position, m.Name), reports[i].Error
		why := strings.Map(withoutDigits, err)
		if state == "vacant" || state == "checking" || state == d.noted[i] && (state != "down" || why == d.why[i] || !d.again.Allow()) {
			continue
		}
		still := state == d.noted[i]
		d.noted[i], d.why[i] = state, why
		attrs := []any{"disk", m.Position, "device", m.Name, "up", up, "of", len(disks)}
		says = append(says, func() {
			if state == "up" {
				d.log.Info("member disk is back", attrs...)
				d.events.Add(events.Event{Kind: events.DiskBack, Reason: fmt.Sprintf("%s, %d of %d up", name, up, len(disks))})
				return
			}
			message := "member disk is lost"
			switch {
			case still:
				message = "member disk is still lost, for another reason"
			case state == "hangs":
				message, name = "member disk hangs", name+" hangs"
			}
			attrs = append(attrs, "err", err)
			if remedy := m.Remedy(); remedy != "" {
				attrs = append(attrs, "remedy", remedy)
			}
			d.log.Warn(message, attrs...)
			if still {
				return
			}
			d.events.Add(events.Event{Kind: events.DiskLost, Reason: fmt.Sprintf("%s, %d of %d up: %s", name, up, len(disks), err)})
		})
	}
	return says
}

// withoutDigits is for reasons that differ only in offsets or times.
func withoutDigits(r rune) rune {
	if unicode.IsDigit(r) {
		return -1
	}
	return r
}

// replaced returns functions that report the changes of the list of members since the last call. Called with
// mu held.
func (d *Disks) replaced() (says []func()) {
	list := d.set.Superblock().Members
	if list.Epoch == d.listed.Epoch {
		return nil
	}
	for i, id := range list.Disks[:list.Positions] {
		if id == d.listed.Disks[i] {
			continue
		}
		d.noted[i] = "" // nothing of the disk that is there now
		now := "vacant"
		if !id.IsZero() {
			now = id.String() // its path may not be known yet
		}
		says = append(says, func() {
			d.log.Info("member disk replaced", "disk", i+1, "now", now, "epoch", list.Epoch)
			d.events.Add(events.Event{Kind: events.Replaced, Reason: fmt.Sprintf("disk %d is now %s, epoch %d", i+1, now, list.Epoch)})
		})
	}
	d.listed = list
	return says
}
