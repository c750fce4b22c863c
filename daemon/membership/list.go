package membership

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

// followEvery is the least time between two calls of Follow for one epoch.
const followEvery = time.Second

// useList lets the machine know which list of member disks the set uses.
func (mb *Member) useList() {
	epoch := mb.set.Superblock().Members.Epoch
	mb.mu.Lock()
	newer := epoch > mb.epoch
	mb.epoch = max(mb.epoch, epoch)
	mb.mu.Unlock()
	if newer {
		mb.event(func(now time.Duration) []lease.Action {
			mb.m.Lists(epoch, 0)
			return mb.m.Refresh(now)
		})
	}
}

// followList lets the set use the list of member disks that a superblock or the record of a live host shows,
// if it is newer. Another host may show a list that no disk has. followList uses it in a goroutine: no renewal
// waits for a path that hangs.
func (mb *Member) followList(epoch uint64, records []lease.Record) {
	known, _ := mb.Known()
	for i, r := range records {
		gone := i < len(known) && known[i].Gone && known[i].Incarnation == r.Incarnation
		if r.Err == nil && r.State == layout.StateLive && !gone {
			epoch = max(epoch, r.Epoch)
		}
	}
	if t := mb.cfg.Lease.Resume; t != nil {
		epoch = max(epoch, t.Epoch)
	}
	if epoch <= mb.set.Superblock().Members.Epoch || !mb.mayFollow(epoch) {
		return
	}
	mb.io.Go(func() {
		_, err := mb.set.Follow()
		mb.useList()
		used := mb.set.Superblock().Members.Epoch
		mb.mu.Lock()
		mb.following = false
		warn := used < epoch && mb.unlisted.Allow()
		mb.mu.Unlock()
		if warn {
			mb.cfg.Log.Warn("the newest list of member disks was not found, trying again", "epoch", epoch, "used", used, "err", err,
				"remedy", "add the paths of all member disks to --device or BAKERYD_DEVICE, and restart bakeryd")
		}
	})
}

// mayFollow reports whether Follow is to be called for an epoch now.
func (mb *Member) mayFollow(epoch uint64) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	now := mb.cfg.Clock.Now()
	if mb.following || epoch <= mb.wanted && now < mb.wantedAt+followEvery {
		return false
	}
	mb.following, mb.wanted, mb.wantedAt = true, epoch, now
	return true
}
