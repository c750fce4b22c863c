// Package waiting says in words what a host that joins waits for, and what ends that. It knows no device and no clock.
package waiting

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Reason is what a host that joins waits for. The zero Reason is nothing.
type Reason struct {
	For  string
	Do   string        // what the operator can do; empty: it ends by itself
	Left time.Duration // after which it is over at the latest; 0: not known
}

// The actions of the operator.
const (
	CheckDisks    = "find the fault of the device: dmesg, multipath -ll, cables"
	CheckRecords  = "run bakeryctl check on the device"
	EndCommands   = "end these commands; bakeryd kills those that it can"
	EndOther      = "end it, or give this one another id"
	RemoveFailure = "remove the cause that the line \"joining again failed, retrying\" of the log has"
)

// Stage is what a host that joins waits for. The zero value waits for nothing. It is safe for concurrent use.
type Stage struct{ reason atomic.Pointer[func() Reason] }

// For sets what is waited for, and what the operator can do.
func (s *Stage) For(what, do string) { s.By(func() Reason { return Reason{For: what, Do: do} }) }

// By sets a function that returns what is waited for.
func (s *Stage) By(reason func() Reason) { s.reason.Store(&reason) }

// Reason returns what is waited for.
func (s *Stage) Reason() Reason {
	if reason := s.reason.Load(); reason != nil {
		return (*reason)()
	}
	return Reason{}
}

// String returns what is waited for; empty: nothing.
func (s *Stage) String() string { return s.Reason().For }

// mostNamed is the number of hosts that Readers names.
const mostNamed = 3

// Readers returns what the host with an id, which is live, waits for before it may take locks: that the reads of
// every other host cover it (COVERED of package lease).
func Readers(id int, hosts []lease.Host, t timing.Times) (r Reason) {
	var all []string
	for i := range hosts {
		if why := reader(id, i+1, &hosts[i], t); why != "" && i+1 != id {
			all = append(all, why)
			if !hosts[i].Readable {
				r.Do = CheckRecords
			}
		}
	}
	if len(all) == 0 {
		return Reason{For: "the next read of the host table"}
	}
	if more := len(all) - mostNamed; more > 0 {
		all = append(all[:mostNamed], fmt.Sprintf("%d more", more))
	}
	r.For = strings.Join(all, ", ")
	return r
}

// Silent returns the hosts that are silent and not dead yet; empty if there are none. Their locks stay held.
func Silent(hosts []lease.Host, t timing.Times) string {
	var names []string
	for i := range hosts {
		if h := &hosts[i]; h.Overdue(t) {
			names = append(names, text.HostName(i+1, h.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ", ") + " to renew, or to be declared dead"
}

// reader returns why another host is waited for; empty: it is not.
func reader(id, other int, h *lease.Host, t timing.Times) string {
	name := text.HostName(other, h.Name)
	switch {
	case !h.Readable && h.Damaged > 0:
		return "the unreadable record of " + name
	case h.State == layout.StateBlank, h.ReadHorizon >= id, h.Gone && h.Settled:
		return ""
	case h.State == layout.StateJoining:
		return name + ", which is joining, to be live or to give up"
	case h.Gone:
		return "the end of the lease of an earlier " + name
	case h.Overdue(t):
		return name + ", which is silent, to renew or to be over its lease"
	case h.ReadHorizon+2 < id:
		return fmt.Sprintf("%s to read as far as host id %d, once a lease", name, id)
	}
	return name + " to find this host, at its next renewal"
}
