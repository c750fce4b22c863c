package membership

import (
	"fmt"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/waiting"
)

// Waits returns what this host waits for until it may take locks: IO, its host id, or other hosts.
func (mb *Member) Waits() string {
	id, io := mb.ID(), locked(mb, func(*lease.Machine) string {
		for _, of := range []underWay{mb.reading, mb.writing} {
			if of.reported {
				return of.what
			}
		}
		return ""
	})
	switch {
	case io != "":
		return "the device, which does not answer: " + io
	case mb.Moments().Deadline != 0:
		hosts, _ := mb.Known()
		return waiting.Readers(id, hosts, mb.times())
	}
	what := "a free host id"
	if id != 0 {
		what = fmt.Sprintf("the claim of host id %d", id)
	}
	if d := mb.delayed.Load(); d != nil {
		what += ": " + d.Reason.Error()
	}
	return what
}
