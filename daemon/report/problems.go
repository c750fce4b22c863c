package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Severity is the severity of a problem.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // locks are blocked or in danger
	SeverityWarning Severity = "warning" // nothing is blocked, but an operator should know
	SeverityNote    Severity = "note"    // unusual but correct
)

// ProblemKind is what a problem is about.
type ProblemKind string

// The kinds of problem.
const (
	ProblemDevice       ProblemKind = "device"         // the disk cannot be read
	ProblemLease        ProblemKind = "lease"          // this host does not renew its lease in time, or has lost it
	ProblemJoining      ProblemKind = "joining"        // this host is not in the lockspace
	ProblemLeaving      ProblemKind = "leaving"        // this host is leaving the lockspace
	ProblemRequest      ProblemKind = "request"        // a request to the device has not returned
	ProblemDisk         ProblemKind = "disk"           // a member disk is not in use
	ProblemSilent       ProblemKind = "silent"         // a host does not renew its lease
	ProblemDead         ProblemKind = "dead"           // a host is declared dead
	ProblemAskedToLeave ProblemKind = "asked_to_leave" // a host was asked to leave, and still renews its lease
	ProblemJoiningHost  ProblemKind = "joining_host"   // another host began to join, and does not go on
	ProblemName         ProblemKind = "name"           // several machines have the same name
	ProblemStuck        ProblemKind = "stuck"          // a lock does not move
	ProblemOrphan       ProblemKind = "orphan"         // a lock is kept by the command of a client that has ended
	ProblemDamaged      ProblemKind = "damaged"        // a record is damaged
	ProblemLockspace    ProblemKind = "lockspace"      // a warning of the lockspace
	ProblemPolicy       ProblemKind = "policy"         // the policy file is not in force
)

// Problem is something that is wrong, and what to do about it. The texts begin in lower case, for
// use in a sentence. A problem that lasts keeps its kind and its subject.
type Problem struct {
	Severity Severity    `json:"severity"`
	Kind     ProblemKind `json:"kind"`
	Subject  string      `json:"subject"`         // a host, lock or record; empty: further ones of the kind
	Text     string      `json:"text"`            // the fact
	Why      string      `json:"why"`             // continues the sentence of the fact; may be empty
	Remedy   string      `json:"remedy"`          // empty if nothing is to be done
	Times    []Moving    `json:"times,omitempty"` // the times in the texts
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
	r.judgeOwn()
	r.addHostHealth()
	r.DescribeSilence()
	r.explainStuck()
	r.Problems = shorten(slices.Concat(r.ownProblems(), r.memberProblems(), r.hostProblems(), r.lockProblems(), r.diskProblems()))
}

// shorten sorts problems by severity, and replaces those of a kind that has too many by one.
func shorten(found []Problem) []Problem {
	subjects := map[ProblemKind][]string{} // by kind
	for _, p := range found {
		subjects[p.Kind] = append(subjects[p.Kind], p.Subject)
	}
	short, listed := []Problem{}, map[ProblemKind]int{}
	for _, p := range found {
		if listed[p.Kind]++; listed[p.Kind] > listedAlone {
			continue
		}
		short = append(short, p)
		rest := subjects[p.Kind][listed[p.Kind]:]
		if listed[p.Kind] < listedAlone || len(rest) == 0 {
			continue
		}
		p.Times, p.Subject, p.Why, p.Remedy = nil, "", strings.Join(rest[:min(len(rest), listedNames)], ", "), ""
		p.Text = fmt.Sprintf("%d more %s", len(rest), furtherWords(p.Kind, len(rest)))
		if len(rest) > listedNames {
			p.Why += ", ..."
		}
		if p.Kind == ProblemSilent {
			p.Remedy = "if many hosts are silent, check the storage first"
		}
		short = append(short, p)
	}
	sortProblems(short)
	return short
}

// further has what one, and several, further problems of a kind are.
var further = map[ProblemKind][2]string{
	ProblemSilent:       {"silent host", "silent hosts"},
	ProblemDead:         {"dead host", "dead hosts"},
	ProblemAskedToLeave: {"host that was asked to leave", "hosts that were asked to leave"},
	ProblemJoiningHost:  {"host that does not finish joining", "hosts that do not finish joining"},
	ProblemName:         {"name of several hosts", "names of several hosts"},
	ProblemStuck:        {"stuck lock", "stuck locks"},
	ProblemOrphan:       {"lock that the command of an ended client keeps", "locks that commands of ended clients keep"},
	ProblemDamaged:      {"damaged record", "damaged records"},
	ProblemLockspace:    {"warning about the lockspace", "warnings about the lockspace"},
	ProblemDisk:         {"disk that is not up", "disks that are not up"},
}

func furtherWords(kind ProblemKind, n int) string {
	words, known := further[kind]
	switch {
	case !known:
		return "of the kind " + string(kind)
	case n == 1:
		return words[0]
	}
	return words[1]
}

func sortProblems(all []Problem) {
	rank := []Severity{SeverityError, SeverityWarning, SeverityNote}
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
}

// AddProblem adds a problem that the server of the report knows.
func (r *Report) AddProblem(p Problem) {
	r.Problems = append(r.Problems, p)
	sortProblems(r.Problems)
}

// AddReadError adds that the lockspace could not be read: its locks are of that age, or not known if it is 0.
func (r *Report) AddReadError(message, hint string, age time.Duration) {
	p := Problem{Severity: SeverityError, Kind: ProblemDevice, Subject: "device", Text: "the disk cannot be read", Why: message}
	r.Problems = slices.Insert(r.Problems, 0, p.withAge(age, cmp.Or(hint, checkDevice)))
}

// withAge returns the problem with the age of the locks shown before its remedy; 0: they were never read. The
// hosts are those of the last read of the host table.
func (p Problem) withAge(age time.Duration, remedy string) Problem {
	p.Remedy = "the locks are not known"
	if age > 0 {
		old := elapsed("the locks shown are of", age.Milliseconds())
		p.Remedy, p.Times = old.String()+" ago", []Moving{old}
	}
	p.Remedy = strings.TrimSuffix(p.Remedy+"; "+remedy, "; ")
	return p
}

// ownProblems returns the problems of the host that made the report: its lease and its device.
func (r *Report) ownProblems() (all []Problem) {
	if r.ThisHost == nil {
		return nil
	}
	rest, lease := r.ThisHost.LeaseLeftMS, r.Lockspace.LeaseMS
	switch {
	case r.ThisHost.lost():
		all = append(all, Problem{Severity: SeverityError, Kind: ProblemLease, Subject: "this host", Text: "this host has lost its lease and its locks",
			Remedy: "it joins again when its commands have ended and the device answers; for the reason, see journalctl -u bakeryd"})
	case rest < lease*6/10:
		end, renewed := left("the lease of this host ends in", rest, "the lease of this host is over"), elapsed("no renewal for", lease-rest)
		stop := left("commands under its locks are asked to stop in", rest-lease/6, "commands under its locks are being stopped")
		p := Problem{SeverityWarning, ProblemLease, "this host", end.String(), renewed.String(), stop.String() + "; " + checkDevice, []Moving{end, renewed, stop}}
		if rest < lease/3 {
			p.Severity = SeverityError
		}
		all = append(all, p)
	}
	if r.ThisHost.State == StateLeaving {
		all = append(all, Problem{Severity: SeverityWarning, Kind: ProblemLeaving, Subject: "this host", Text: "this host is leaving the lockspace"})
	}
	if io := r.ThisHost.IO; io != nil && io.OldestMS > max(1000, lease/20) {
		since := elapsed("a request to the device has not returned for", io.OldestMS)
		p := Problem{SeverityWarning, ProblemRequest, "device", since.String(), "the device hangs or is overloaded", checkDevice, []Moving{since}}
		if io.OldestMS > lease/6 {
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
			all = append(all, Problem{SeverityError, ProblemSilent, name, name + " is silent", why, remedy, h.Times})
		case h.Health == HealthDead && !h.Forgotten:
			all = append(all, Problem{Severity: SeverityWarning, Kind: ProblemDead, Subject: name, Text: name + " is dead", Why: "its locks are free",
				Remedy: startThere + ", and it joins again;" + r.unfenced(h) + fmt.Sprintf(" only if it is gone for good: bakeryctl evict %d --forget frees its id", h.ID)})
		}
		if h.Health == HealthJoining && h.SilentMS != nil && *h.SilentMS > 2*r.Lockspace.LeaseMS {
			since := elapsed("its record has not changed for", *h.SilentMS)
			all = append(all, Problem{SeverityWarning, ProblemJoiningHost, name, name + " began to join and is not live", since.String(),
				fmt.Sprintf("it holds nothing and blocks no lock; start bakeryd on its machine with --host-id %d, which takes the id; use another id for another machine", h.ID), []Moving{since}})
		}
		if h.AskedToLeave {
			all = append(all, Problem{Severity: SeverityWarning, Kind: ProblemAskedToLeave, Subject: name, Text: name + " was asked to leave, and still renews",
				Remedy: "it stops its holders and leaves; until then its locks stay held"})
		}
	}
	return append(all, r.nameProblems()...)
}

// nameProblems returns the names that several machines have at the same time. Several hosts of one boot
// are one machine, such as commands with --device. A host whose boot is not known may be another host
// of the same machine.
func (r *Report) nameProblems() (all []Problem) {
	of := map[string][]string{} // ids by name
	boots := map[[2]string]bool{}
	for _, h := range r.Hosts {
		if boot := [2]string{h.Name, h.BootID}; h.Name != "" && h.BootID != "" && (h.Health == HealthLive || h.Health == HealthSilent) && !boots[boot] {
			boots[boot] = true
			of[h.Name] = append(of[h.Name], strconv.Itoa(h.ID))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if ids := of[name]; len(ids) > 1 {
			all = append(all, Problem{Severity: SeverityWarning, Kind: ProblemName, Subject: text.Printable(name),
				Text: fmt.Sprintf("%d hosts have the name %s", len(ids), text.Printable(name)), Why: "host ids " + strings.Join(ids, ", "),
				Remedy: "set --name or BAKERYD_NAME on all but one of them, and restart their bakeryd"})
		}
	}
	return all
}

// startThere is the harmless remedy of a host whose bakeryd has ended.
const startThere = "if the host runs, start bakeryd on it (systemctl start bakeryd)"

// silence returns since when a host is silent, how that ends, and the remedies: waiting first, eviction last.
func (r *Report) silence(h *Host) (why, remedy string) {
	if r.ThisHost == nil {
		return h.Silence, "a running bakeryd shows when it is declared dead"
	}
	wait := "nothing to do: its locks are released then"
	switch {
	case h.DeadInMS == nil:
		wait = "its locks stay held: with policy manual no host is declared dead by time"
	case h.FailedFences > 0:
		wait = "its locks stay held until it is fenced or back; for the reason, see \"fencing failed\" in the log of the host that tried"
	case r.Lockspace.Policy == layout.PolicyFence:
		wait = "nothing to do: its locks are released when the fence is confirmed"
	}
	return h.Silence, fmt.Sprintf("%s; %s; only if it is certainly powered off: bakeryctl evict %d frees them immediately", wait, startThere, h.ID)
}

// unfenced returns what to know of a dead host that nothing stopped, "" if it was fenced, or reset by
// its watchdog.
func (r *Report) unfenced(h *Host) string {
	if r.Lockspace.Policy == layout.PolicyFence || h.WatchdogArmed {
		return ""
	}
	return " it was not fenced: if it only hung, check that its commands have ended;"
}

func (r *Report) lockProblems() (all []Problem) {
	for _, l := range r.Locks {
		name := "lock " + text.Printable(l.Name)
		if l.Number == lockspace.DirectoryLock {
			name = "the lock of the directory"
		}
		orphan := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.Orphan })
		switch {
		case l.Stuck != "":
			all = append(all, Problem{SeverityError, ProblemStuck, name, name + " is stuck", l.Stuck, "", l.Times})
		case orphan >= 0:
			h := &l.Holders[orphan]
			all = append(all, Problem{Severity: SeverityNote, Kind: ProblemOrphan, Subject: name, Text: name + " is kept by the command of a client that has ended",
				Why: h.leftOver(), Remedy: "it is released when its processes have ended"})
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
		p := Problem{Severity: SeverityError, Kind: ProblemDamaged, Subject: d.What, Text: "damaged: " + d.What, Why: d.Error, Remedy: "run bakeryctl check " + r.devices()}
		if d.Kind == lockspace.KindHost {
			p.Remedy = "its next renewal repairs it; if the host is down: bakeryctl check --repair " + r.devices()
		}
		all = append(all, p)
	}
	for _, w := range r.Lockspace.Warnings {
		all = append(all, Problem{Severity: SeverityWarning, Kind: ProblemLockspace, Subject: w, Text: w})
	}
	return all
}
