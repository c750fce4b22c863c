package report

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Disk is a member disk of a lockspace on several, as one process sees it.
type Disk struct {
	Position int         `json:"position"`
	Device   string      `json:"device"`
	UUID     layout.UUID `json:"uuid"`

	State    string    `json:"state"` // up, checking or down
	Since    time.Time `json:"since"` // when it came up, or ceased to be up
	Error    string    `json:"error,omitempty"`
	Failures int       `json:"failures"` // failed requests
	Behind   int       `json:"behind"`   // records of this host that it lacks
	IO       *IO       `json:"io"`
}

// Up reports whether the disk is read and written.
func (d Disk) Up() bool { return d.State == "up" }

// DisksOf returns the report of member disks, by position.
func DisksOf(members []lockspace.MemberDisk) (disks []Disk) {
	for _, m := range members {
		d := Disk{Position: m.Position, Device: m.Name, UUID: m.UUID, State: m.State.String(), Since: m.Since.UTC(),
			Failures: m.Failures, Behind: m.Behind, IO: IOOf(m.Stats)}
		if m.Err != nil {
			d.Error = m.Err.Error()
		}
		disks = append(disks, d)
	}
	return disks
}

// IOOf returns the report of a device's requests.
func IOOf(s blockdev.Stats) *IO {
	of := func(l blockdev.Latency) Latency {
		return Latency{Count: l.Count, Errors: l.Errors, P50US: l.P50.Microseconds(), P99US: l.P99.Microseconds(), MaxUS: l.Max.Microseconds()}
	}
	return &IO{Read: of(s.Read), Write: of(s.Write), InFlight: s.InFlight, OldestMS: s.Oldest.Milliseconds()}
}

// memberProblems returns the member disks that are not used, and how many more may fail.
func (r *Report) memberProblems() (all []Problem) {
	up := 0
	for _, d := range r.Disks {
		if d.Up() {
			up++
		}
	}
	spare := up - (len(r.Disks)/2 + 1)
	for _, d := range r.Disks {
		if d.Up() {
			continue
		}
		p := Problem{SeverityWarning, "disk", d.Device, fmt.Sprintf("member disk %d is %s: %s", d.Position, d.State, d.Device), d.Error, ""}
		switch {
		case spare < 0:
			p.Severity, p.Remedy = SeverityError, fmt.Sprintf("only %d of %d disks are up: no host can work until a majority is; %s", up, len(r.Disks), checkDevice)
		case spare == 0:
			p.Remedy = "one more loss stops all hosts; " + checkDevice
		default:
			p.Remedy = checkDevice
		}
		all = append(all, p)
	}
	return all
}
