package replacement

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// follow waits until every host that is live or joining uses the list of members with an epoch, by its record:
// FOLLOW. It returns an error if a host uses a newer list, or if it takes longer than a host can be silent before
// it is dead.
func (r *replacement) follow(ctx context.Context, epoch uint64) error {
	t := r.times
	limit := t.Dead() + t.MaxWatchdog() + joinPatience*t.Lease
	joiners, shown := map[int]standingStill{}, ""
	for began := r.clock.Now(); ; {
		asked := r.clock.Now()
		rows, err := lockspace.ReadHostTable(r.disks, r.done.Lockspace.Space())
		if err != nil {
			return fmt.Errorf("read host table: %w", err)
		}
		known, _ := r.host.Member().Known()
		var late []string
		for _, row := range rows {
			var h lease.Host
			if row.ID <= len(known) {
				h = known[row.ID-1]
			}
			if row.Err == nil && row.Record.State == layout.StateLive && row.Record.Epoch > epoch && !(h.Gone && h.Incarnation == row.Record.Incarnation) {
				return fmt.Errorf("%s uses a newer list of disks, which none of the given disks has; give all disks with --device",
					text.HostName(row.ID, row.Record.Name))
			}
			still := joiners[row.ID].seen(shownBy(row), asked, r.clock.Now())
			joiners[row.ID] = still
			if !follows(row, h, epoch, asked-still.since >= t.Dead(), r.done.Lockspace.Policy) {
				late = append(late, nameOf(row))
			}
		}
		names := strings.Join(late, ", ")
		switch {
		case len(late) == 0:
			return nil
		case r.clock.Now()-began > limit:
			return fmt.Errorf("after %v the new list of disks is not used by %s; give bakeryd there the paths of all disks, or use bakeryctl evict if it is dead",
				limit.Round(time.Second), names)
		case names != shown && r.clock.Now()-began > t.Alive(): // each renewal reads the table
			r.Progress("waiting for hosts to use the new list of disks: " + names)
			shown = names
		}
		if retry.Pause(ctx, lockspace.PollInterval(t.Lease, time.Second)) != nil {
			return context.Cause(ctx)
		}
	}
}

func nameOf(row lockspace.HostRow) string {
	if row.Err != nil {
		return fmt.Sprintf("host %d, whose record cannot be read (see bakeryctl check)", row.ID)
	}
	return text.HostName(row.ID, row.Record.Name)
}

// standingStill is how long a host record did not change.
type standingStill struct {
	shown string
	since time.Duration // when the first read of it returned
}

// seen returns the state after one more read.
func (s standingStill) seen(shown string, asked, now time.Duration) standingStill {
	if shown == s.shown && asked >= s.since {
		return s
	}
	return standingStill{shown, now}
}

// shownBy returns what changes with each write of a host record. The sectors of two member disks differ
// without a write: each copy has its position.
func shownBy(row lockspace.HostRow) string {
	rec := row.Record
	if row.Err != nil {
		return row.Raw
	}
	return fmt.Sprint(rec.Incarnation, rec.Generation, rec.Sequence, rec.State, rec.Epoch)
}

// follows reports whether a host needs not be waited for. h is what is known of it; zero if nothing. A live or a left
// record with a read horizon is by a host that was live: it hides no other incarnation that is. A joining one does
// until it is settled.
//
// A joiner whose record stands still may be dead, and no host declares it dead. If it is not, it reads the superblocks
// again, less than a budget before it goes live (BEFORE-LIVE), and that read has not begun yet.
func follows(row lockspace.HostRow, h lease.Host, epoch uint64, still bool, policy layout.Policy) bool {
	rec := row.Record
	same := h.Incarnation == rec.Incarnation
	switch {
	case row.Err != nil:
		return h.Abandoned && policy == layout.PolicyLease
	case rec.State == layout.StateJoining:
		return same && h.Settled && (rec.Epoch == epoch || still)
	case rec.ReadHorizon == 0 && !(same && h.Settled):
		return false
	case rec.State == layout.StateLive:
		return rec.Epoch == epoch || same && h.Gone
	}
	return true
}
