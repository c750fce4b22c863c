package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// BuildLock interprets a snapshot that has the entry and the slots of one lock, for a daemon that knows
// the hosts from watching them. self is the record of its own host.
func BuildLock(s *lockspace.Snapshot, k *Knowledge, self layout.HostRecord) *Report {
	of := *s
	of.Damaged, of.Hosts = slices.Clip(s.Damaged), slices.Clip(s.Hosts) // several callers may share the snapshot
	ids := map[int]bool{}
	for _, slot := range s.Slots {
		ids[slot.Host] = slot.Phase != layout.Idle
	}
	for _, d := range s.Damaged {
		ids[d.Host] = true
	}
	for id, concerned := range ids {
		switch h := k.host(id); {
		case !concerned || h.Incarnation == 0 && id != self.ID:
		case id == self.ID:
			of.Hosts = append(of.Hosts, self)
		case !h.Readable:
			record := lockspace.HostAt(s.Superblock.Geometry, id)
			record.Err = errUnreadable
			of.Damaged = append(of.Damaged, record)
		default:
			of.Hosts = append(of.Hosts, k.remembered(id))
		}
	}
	r := Build(&of, k)
	r.ThisHost = &ThisHost{ID: self.ID, Name: self.Name, Incarnation: text.Hex(self.Incarnation)}
	return r
}

var errUnreadable = errors.New("unreadable")

// Blocker returns in words what a client that requests a lock waits for: the holder, with its process,
// or the reason why the lock is stuck. It returns "" if neither is known. The caller adds what the
// daemon knows of its clients before. The names and the command come from the disk and from clients.
func (r *Report) Blocker(l *Lock, now time.Time) string {
	r.DescribeSilence()
	r.explainStuck()
	if len(l.Holders) == 0 {
		return l.Stuck
	}
	shown, state := 0, ""
	for i, h := range l.Holders {
		if state = r.trouble(h.Host); state == "" && h.Orphan {
			state = ": its bakeryctl is gone, " + h.leftOver()
		}
		if state != "" {
			shown = i
			break
		}
	}
	words := "held by " + l.Holders[shown].words(now)
	if more := len(l.Holders) - 1; more > 0 {
		words += fmt.Sprintf(", and %d more", more)
	}
	if state == "" && l.Stuck != "" {
		state = "; " + l.Stuck
	}
	return words + state
}

// words returns a holder: db1 (host 1), pid 2234 "sleep 300", for 38 s.
func (h *Holder) words(now time.Time) string {
	words := fmt.Sprintf("host %d", h.Host)
	if h.HostName != "" {
		words = fmt.Sprintf("%s (%s)", text.Printable(h.HostName), words)
	}
	if h.PID != 0 && !h.Orphan { // the process of an orphan's client is gone
		words += fmt.Sprintf(", pid %d", h.PID)
		if h.Command != "" {
			words += " " + strconv.Quote(h.Command)
		}
	}
	if !h.Since.IsZero() {
		words += ", for " + Elapsed(max(0, now.Sub(h.Since))) // by the clock of its host
	}
	return words
}
