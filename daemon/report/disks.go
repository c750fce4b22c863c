package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Disk is a member disk of a lockspace on several, as one process sees it.
type Disk struct {
	Position int         `json:"position"`
	Device   string      `json:"device"` // its path; empty if none was given
	UUID     layout.UUID `json:"uuid"`

	// State is hangs if a request or a check does not return, and vacant if no disk is at the
	// position.
	State    string    `json:"state" jsonschema_extras:"x-extensible-enum=up,x-extensible-enum=checking,x-extensible-enum=down,x-extensible-enum=hangs,x-extensible-enum=vacant"`
	Since    time.Time `json:"since"` // when it came up, or ceased to be up
	Error    string    `json:"error,omitempty"`
	Remedy   string    `json:"remedy,omitempty"` // what to do about the error; empty: check the device
	Failures int       `json:"failures"`         // failed requests
	Behind   int       `json:"behind"`           // records of this host that it lacks
	IO       IO        `json:"io"`               // latencies of its requests
}

// Up reports whether the disk is read and written, and answers.
func (d Disk) Up() bool { return d.State == "up" }

// AddDisks adds the member disks, if there are several. The lockspace is on those that have a path.
func (r *Report) AddDisks(members []lockspace.MemberDisk) {
	var paths []string
	r.Disks = DisksOf(members)
	for _, d := range r.Disks {
		if d.Device != "" {
			paths = append(paths, d.Device)
		}
	}
	r.Lockspace.Device = cmp.Or(strings.Join(paths, ", "), r.Lockspace.Device)
}

// WarnOfList adds a warning if the record of a live host shows a newer list of member disks than the one in use.
func (r *Report) WarnOfList(used uint64, hosts []layout.HostRecord) {
	if slices.ContainsFunc(hosts, func(rec layout.HostRecord) bool {
		health := r.HostByID(rec.ID).Health
		return rec.Epoch > used && (health == HealthLive || health == HealthSilent)
	}) {
		r.Lockspace.Warnings = append(r.Lockspace.Warnings, "this host does not find the disks of the newest list of members: "+
			"add the paths of all member disks to BAKERYD_DEVICE, and restart bakeryd")
	}
}

// DisksOf returns the report of member disks, by position.
func DisksOf(members []lockspace.MemberDisk) (disks []Disk) {
	for _, m := range members {
		d := Disk{Position: m.Position, Device: m.Name, UUID: m.UUID, State: m.State.String(), Since: m.Since.UTC(),
			Failures: m.Failures, Behind: m.Behind, IO: *IOOf(m.Stats), Remedy: m.Remedy()}
		if m.Err != nil {
			d.Error = m.Err.Error()
		}
		switch {
		case errors.Is(m.Err, lockspace.ErrVacant):
			d.Device, d.State, d.Behind = "", "vacant", 0 // nothing is there
		case errors.Is(m.Err, lockspace.ErrNoPath):
			d.Device = ""
		}
		switch oldest, checked := m.Stats.Oldest, time.Since(m.Since); {
		case d.Up() && oldest > lockspace.HangAfter:
			d.State, d.Since, d.Error = "hangs", time.Now().Add(-oldest).UTC(), "a request has not returned for "+Elapsed(oldest)
		case d.State == "checking" && checked > lockspace.HangAfter:
			d.State = "hangs"
			d.Error = strings.TrimSuffix("its check has not returned for "+Elapsed(checked)+", after: "+d.Error, ", after: ")
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
	up, need := 0, len(r.Disks)/2+1
	for _, d := range r.Disks {
		if d.Up() {
			up++
		}
	}
	for _, d := range r.Disks {
		if d.Up() {
			continue
		}
		p := Problem{Severity: SeverityWarning, Kind: ProblemDisk, Subject: fmt.Sprintf("disk %d", d.Position), Why: d.Error, Remedy: cmp.Or(d.Remedy, checkDevice)}
		p.Text = "member " + p.Subject
		if d.Device != "" {
			p.Text += " (" + text.PrintableLine(d.Device) + ")"
		}
		if p.Text += map[string]string{"checking": " is being checked", "down": " is down", "hangs": " hangs"}[d.State]; d.State == "vacant" {
			p.Text, p.Why = p.Text+" is "+d.Error, ""
		}
		switch {
		case up < need:
			p.Severity = SeverityError
			p.Remedy = fmt.Sprintf("%d of %d disks up, %d needed: this host cannot renew its lease; %s", up, len(r.Disks), need, p.Remedy)
		case up == need:
			p.Remedy = "a host that loses one more disk loses its lease; " + p.Remedy
		}
		all = append(all, p)
	}
	return all
}
