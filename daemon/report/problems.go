package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Severity is the severity of a problem.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // locks are blocked or in danger
	SeverityWarning Severity = "warning" // nothing is blocked, but an operator should know
	SeverityNote    Severity = "note"    // unusual but correct
)

// Problem is something that is wrong, and what to do about it. The texts begin in lower case, for
// use in a sentence. Their times are those of the report. Kind and Subject identify a problem that
// lasts.
type Problem struct {
	Severity Severity `json:"severity"`
	Kind     string   `json:"kind"`
	Subject  string   `json:"subject"` // a host, lock or record; empty: further ones of the kind
	Text     string   `json:"text"`
	Why      string   `json:"why"`    // continues Text; may be empty
	Remedy   string   `json:"remedy"` // empty if nothing is to be done
}

const (
	listedAlone = 5 // maximum of problems of one kind that are listed one by one
	listedNames = 8 // maximum of subjects of the others that are named
)

// checkDevice is the remedy for a device that does not answer in time.
const checkDevice = "check the device: dmesg, multipath -ll, iostat -x 1"

// Judge sets Stuck of every lock, and Problems, the worst first. The caller adds what the daemon
// knows of its clients before.
func (r *Report) Judge() {
	r.explainStuck()
	r.Problems = shorten(slices.Concat(r.ownProblems(), r.memberProblems(), r.hostProblems(), r.lockProblems(), r.diskProblems()))
}

// shorten sorts problems by severity, and replaces those of a kind that has too many by one.
func shorten(found []Problem) []Problem {
	subjects := map[string][]string{} // by kind
	for _, p := range found {
		subjects[p.Kind] = append(subjects[p.Kind], p.Subject)
	}
	short, listed := []Problem{}, map[string]int{}
	for _, p := range found {
		if listed[p.Kind]++; listed[p.Kind] > listedAlone {
			continue
		}
		short = append(short, p)
		rest := subjects[p.Kind][listed[p.Kind]:]
		if listed[p.Kind] < listedAlone || len(rest) == 0 {
			continue
		}
		p.Subject, p.Why, p.Remedy = "", strings.Join(rest[:min(len(rest), listedNames)], ", "), ""
		p.Text = fmt.Sprintf("%d more %s", len(rest), strings.ReplaceAll(p.Kind, "_", " "))
		if len(rest) > listedNames {
			p.Why += ", ..."
		}
		if p.Kind == "silent" {
			p.Remedy = "if many hosts are silent, check the storage first"
		}
		short = append(short, p)
	}
	rank := []Severity{SeverityError, SeverityWarning, SeverityNote}
	slices.SortStableFunc(short, func(a, b Problem) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return short
}

// AddReadError adds that the lockspace could not be read since: its state is of that age.
func (r *Report) AddReadError(message, hint string, age time.Duration) {
	r.Problems = slices.Insert(r.Problems, 0, Problem{SeverityError, "device", "device", "the disk cannot be read", message,
		fmt.Sprintf("its state is %s old; %s", formatDuration(age), cmp.Or(hint, checkDevice))})
}

// ownProblems returns the problems of the host that made the report: its lease and its device.
func (r *Report) ownProblems() (all []Problem) {
	if r.ThisHost == nil {
		return nil
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	left, lease := ms(r.ThisHost.LeaseLeftMS), ms(r.Lockspace.LeaseMS)
	switch {
	case r.ThisHost.State == "lost" || left <= 0:
		all = append(all, Problem{SeverityError, "lease", "this host", "this host has lost its lease and its locks", "",
			"it joins again when its commands have ended and the device answers; the log of bakeryd has the reason"})
	case left < lease*6/10:
		p := Problem{SeverityWarning, "lease", "this host", "the lease of this host ends in " + formatDuration(left),
			"it was last renewed " + formatDuration(lease-left) + " ago", "commands under its locks are being stopped; " + checkDevice}
		if stop := left - lease/6; stop > 0 {
			p.Remedy = fmt.Sprintf("commands under its locks are asked to stop in %s; %s", formatDuration(stop), checkDevice)
		}
		if left < lease/3 {
			p.Severity = SeverityError
		}
		all = append(all, p)
	}
	if r.ThisHost.State == "leaving" {
		all = append(all, Problem{SeverityWarning, "leaving", "this host", "this host is leaving the lockspace", "", ""})
	}
	if io := r.ThisHost.IO; io != nil && ms(io.OldestMS) > max(time.Second, lease/20) {
		p := Problem{SeverityWarning, "request", "device", "a request to the device has not returned for " + formatDuration(ms(io.OldestMS)),
			"the device hangs or is overloaded", checkDevice}
		if ms(io.OldestMS) > lease/6 {
			p.Severity = SeverityError
		}
		all = append(all, p)
	}
	return all
}

func (r *Report) hostProblems() (all []Problem) {
	for i := range r.Hosts {
		h := &r.Hosts[i]
		name := text.HostName(h.ID, h.Name)
		switch {
		case h.Health == HealthSilent:
			why, remedy := r.silence(h)
			all = append(all, Problem{SeverityError, "silent", name, name + " is silent", why, remedy})
		case h.Health == HealthDead && !h.Forgotten:
			all = append(all, Problem{SeverityWarning, "dead", name, name + " is dead", "its locks are free",
				fmt.Sprintf("start it again, it joins by itself; if it will not return: bakeryctl evict %d --forget", h.ID)})
		}
		if h.AskedToLeave {
			all = append(all, Problem{SeverityWarning, "asked_to_leave", name, name + " was asked to leave, and still renews", "",
				"it stops its holders and leaves; until then its locks stay held"})
		}
	}
	return all
}

// silence returns since when a host is silent, how that ends, and what an operator can do.
func (r *Report) silence(h *Host) (why, remedy string) {
	if h.SilentMS != nil {
		why = "no renewal for " + formatDuration(time.Duration(*h.SilentMS)*time.Millisecond)
	}
	if r.ThisHost == nil {
		return why, "a running bakeryd shows when it is declared dead"
	}
	remedy = fmt.Sprintf("if you are certain that it is off: bakeryctl evict %d", h.ID)
	if end := r.ending(h, "dead", "fenced"); end != "" {
		return why + ", " + end, remedy
	}
	return why + ", and it is not declared dead automatically", remedy + "; until then its locks are blocked"
}

func (r *Report) lockProblems() (all []Problem) {
	for _, l := range r.Locks {
		name := "lock " + text.Printable(l.Name)
		if l.Lock == lockspace.DirectoryLock {
			name = "the lock of the directory"
		}
		orphan := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.Orphan })
		switch {
		case l.Stuck != "":
			all = append(all, Problem{SeverityError, "stuck", name, name + " is stuck", l.Stuck, ""})
		case orphan >= 0:
			h := &l.Holders[orphan]
			all = append(all, Problem{SeverityNote, "orphan", name, name + " is kept by the command of a client that has ended", h.leftOver(),
				"it is released when its processes have ended"})
		}
	}
	return all
}

// devices returns the arguments of a command for the disks that are up.
func (r *Report) devices() string {
	var up []string
	for _, d := range r.Disks {
		if d.Up() {
			up = append(up, d.Device)
		}
	}
	return cmp.Or(strings.Join(up, " "), r.Lockspace.Device)
}

// diskProblems returns the damaged records, and the warnings about the lockspace.
func (r *Report) diskProblems() (all []Problem) {
	for _, d := range r.Damaged {
		p := Problem{SeverityError, "damaged", d.What, "damaged: " + d.What, d.Error, "run bakeryctl check " + r.devices()}
		if d.Kind == lockspace.KindHost {
			p.Remedy = "its next renewal repairs it; if the host is down: bakeryctl check --repair " + r.devices()
		}
		all = append(all, p)
	}
	for _, w := range r.Lockspace.Warnings {
		all = append(all, Problem{SeverityWarning, "lockspace", w, w, "", ""})
	}
	return all
}
