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
	t, limit, shown := r.times, r.limit(), ""
	for began := r.clock.Now(); ; {
		asked := r.clock.Now()
		rows, err := lockspace.ReadHostTable(r.disks, r.done.Lockspace.Space())
		if err != nil {
			return fmt.Errorf("read host table: %w", err)
		}
		if _, _, err := r.host.Member().ReadHosts(); err != nil { // after rows: see follows
			return err
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
			if !follows(row, h, epoch, asked-began >= t.Dead(), r.done.Lockspace.Policy) {
				late = append(late, nameOf(row))
			}
		}
		names := strings.Join(late, ", ")
		switch {
		case len(late) == 0:
			return nil
		case r.clock.Now()-began > limit:
			return fmt.Errorf("after %v the new list of disks is not used by %s; add the paths of all disks to BAKERYD_DEVICE there and restart bakeryd, or use bakeryctl evict if the host is dead",
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

// follows reports whether a host needs not be waited for. h is what is known of it by a later read; zero if nothing.
// late reports that the list was on a majority of the members Dead before row was read.
//
// A live or a left record with a read horizon is by a host that was live: it hides no other incarnation that is. A
// joining one does until it is settled. A record that the settled incarnation overwrites is over, and that one had
// not completed its claim when row was read: it finds the list before it goes live (BEFORE-LIVE).
//
// A joiner may be dead, and no host declares it dead. If it is not, it finds the list, or had read the superblocks
// before that. Then it would have been live within a budget, and its lease would be over by now.
func follows(row lockspace.HostRow, h lease.Host, epoch uint64, late bool, policy layout.Policy) bool {
	rec := row.Record
	same := h.Incarnation == rec.Incarnation
	switch {
	case row.Err != nil:
		return h.Abandoned && policy == layout.PolicyLease
	case h.Settled && !same:
		return true
	case rec.State == layout.StateJoining:
		return h.Settled && (rec.Epoch == epoch || late)
	case rec.ReadHorizon == 0 && !h.Settled:
		return false
	case rec.State == layout.StateLive:
		return rec.Epoch == epoch || same && h.Gone
	}
	return true
}
