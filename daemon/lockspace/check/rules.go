package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// The beginnings of remedies.
const (
	remedyNone       = "nothing needed"
	remedyRepair     = "bakeryctl check --repair "
	remedyRestartAll = "stop bakeryd on all hosts, then start them again: they take the locks from the directory"
)

// farAhead is how far a number may be ahead of the clock. Beyond it, the clock of its author or of
// this machine is wrong.
const farAhead = 365 * 24 * time.Hour

// suspicions returns what looks wrong in a picture.
func (p *picture) suspicions(now time.Time) (all []suspicion) {
	all = append(all, p.superblockRules()...)
	far := bakery.ClockNumber(now.Add(farAhead), now)
	for _, r := range p.damaged {
		all = append(all, p.damageRule(r))
	}
	for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
		all = append(all, p.hostRules(p.hosts[id])...)
	}
	all = append(all, p.directoryRules(far)...)
	for _, lock := range p.locks {
		all = append(all, p.lockRules(lock, far)...)
	}
	return all
}

func suspect(severity Severity, r lockspace.Record, rule, problem, mend string) suspicion {
	return suspicion{rule: rule, Finding: Finding{Severity: severity, What: r.Describe(), Kind: r.Kind, Lock: r.Lock, Host: r.Host,
		Offset: r.Offset, Problem: problem, Remedy: mend}}
}

// superblockRules checks the superblock, its copy, and the block size of the device.
func (p *picture) superblockRules() (all []suspicion) {
	if len(p.super) != 2 {
		return nil
	}
	good := 0
	for _, r := range p.super {
		if r.Err == nil {
			good++
		}
	}
	for i, r := range p.super {
		if r.Err == nil {
			continue
		}
		s := suspect(SeverityError, r, "superblock", problemText(r), remedyRepair+"writes it again from the copy, which is whole")
		if i == 1 {
			s.Remedy = remedyRepair + "writes it again from the superblock, which is whole"
		}
		s.Repair = good == 1 && !r.OtherLockspace
		if !s.Repair {
			s.Remedy = "compare both with bakeryctl dump: hosts use the one at byte 0; only the operator knows which is right"
		}
		all = append(all, s)
	}
	g, info := p.ex.sb.Geometry, p.ex.dev.Info()
	if physical := info.PhysicalBlock; g.Stride < physical && !info.Regular {
		all = append(all, suspect(SeverityWarning, p.super[0], "stride", fmt.Sprintf("stride %d is below the physical block size of %d: "+
			"a write of one host may damage the records of others", g.Stride, physical), "run bakeryctl format, which takes the stride from the device"))
	}
	return all
}

// problemText returns the error of a record without the name of the record, which the finding has.
func problemText(r lockspace.Record) string {
	text := r.Err.Error()
	if _, rest, ok := strings.Cut(text, fmt.Sprintf(" at byte %d: ", r.Offset)); ok {
		return rest
	}
	return strings.TrimPrefix(text, r.Describe()+": ")
}

// damageRule returns the finding for a record that cannot be read or decoded.
func (p *picture) damageRule(r lockspace.Record) suspicion {
	s := suspect(SeverityError, r, "damaged", problemText(r), "")
	switch r.Kind {
	case lockspace.KindHost:
		s.Repair = true
		within := (lease.Times{Lease: p.ex.sb.Lease}.Alive() + time.Second/10).Truncate(time.Second / 10)
		s.Remedy = fmt.Sprintf("if bakeryd runs on host %d it writes the record within %v; if not, %s%swrites it",
			r.Host, within, p.mustBeOff(r.Host), remedyRepair)
	case lockspace.KindEntry:
		s.Repair = true
		s.Remedy = p.planEntryRepair(r.Lock, p.hostsMaybeUp()).adviceText()
	case lockspace.KindSlot:
		s.Severity, s.Remedy = p.slotRemedy(r)
	}
	return s
}

// mustBeOff returns the instruction to switch a host off, if the policy does not declare it dead by
// time alone.
func (p *picture) mustBeOff(host int) string {
	if p.ex.sb.Policy == layout.PolicyLease {
		return ""
	}
	return fmt.Sprintf("make sure that host %d is off, then ", host)
}

// slotRemedy returns the severity of a slot that cannot be read, and its remedy.
func (p *picture) slotRemedy(r lockspace.Record) (Severity, string) {
	h, known := p.hosts[r.Host]
	_, hidden := p.damage(lockspace.KindHost, 0, r.Host)
	e := p.entries[r.Lock]
	_, lost := p.damage(lockspace.KindEntry, r.Lock, 0)
	switch {
	case hidden:
		return SeverityError, fmt.Sprintf("repair the record of host %d first: then the slot is rewritten or reads as idle", r.Host)
	case !known:
		return SeverityWarning, fmt.Sprintf("%s: host %d never joined, and rewrites it if it does", remedyNone, r.Host)
	case p.gone(r.Host):
		return SeverityWarning, fmt.Sprintf("%s: host %d is gone, and the slot reads as idle; its next bakeryd rewrites it", remedyNone, r.Host)
	case r.Lock != lockspace.DirectoryLock && e.Free() && !lost:
		return SeverityWarning, remedyNone + ": no lock is there; the next host that uses the place rewrites it"
	case h.State == layout.StateJoining:
		return SeverityWarning, fmt.Sprintf("%s: host %d is joining and rewrites it, or if it died meanwhile, it reads as idle", remedyNone, r.Host)
	}
	text := fmt.Sprintf("host %d rewrites it when another host needs it; %s", r.Host, p.ifDead(r.Host))
	if p.ex.sb.Policy != layout.PolicyManual {
		text = remedyNone + ": " + text
	}
	return SeverityError, text
}

// ifDead returns the remedy for the case that a host is dead and has no verdict.
func (p *picture) ifDead(host int) string {
	switch p.ex.sb.Policy {
	case layout.PolicyManual:
		return fmt.Sprintf("if it is dead, run bakeryctl evict %d", host)
	case layout.PolicyFence:
		return "if it is dead, another host fences it"
	}
	return "if it is dead, another host declares it dead"
}

// ended reports whether an incarnation is known to have ended.
func (p *picture) ended(host int, incarnation uint64) bool {
	if _, hidden := p.damage(lockspace.KindHost, 0, host); hidden {
		return p.verdicts[lockspace.HostIncarnation{Host: host, Incarnation: incarnation}].Dead
	}
	h, ok := p.hosts[host]
	return !ok || h.Incarnation != incarnation || h.State == layout.StateLeft || p.verdicts[lockspace.HostIncarnation{Host: host, Incarnation: incarnation}].Dead
}

// gone reports whether the record of a host can be read and shows that no incarnation of it is up.
func (p *picture) gone(host int) bool {
	_, hidden := p.damage(lockspace.KindHost, 0, host)
	return !hidden && p.ended(host, p.hosts[host].Incarnation)
}

// current reports whether the incarnation of a slot is in the lockspace by the host table. It may
// be down.
func (p *picture) current(s layout.Slot) bool {
	_, known := p.hosts[s.Host]
	return known && !p.ended(s.Host, s.Incarnation)
}

// highestTaker returns the highest host that took a ticket since it joined, and the lock of that
// ticket. A host without a ticket may be waiting until the others cover it.
func (p *picture) highestTaker() (host, lock int) {
	for at, slots := range p.slots {
		for _, s := range slots {
			if h := p.hosts[s.Host]; s.Host > host && s.Ticket != 0 && s.Incarnation == h.Incarnation {
				host, lock = s.Host, at
			}
		}
	}
	return host, lock
}

// hostRules checks a host record that can be read.
func (p *picture) hostRules(h layout.HostRecord) (all []suspicion) {
	r := lockspace.Record{Kind: lockspace.KindHost, Host: h.ID, Offset: p.ex.space.Geometry.Host(h.ID)}
	if top, lock := p.highestTaker(); h.State == layout.StateLive && h.ReadHorizon < top && !p.ended(h.ID, h.Incarnation) {
		s := suspect(SeverityError, r, "highest", fmt.Sprintf("it covers hosts up to %d, and host %d takes locks: host %d may not see them", h.ReadHorizon, top, h.ID),
			fmt.Sprintf("restart bakeryd on host %d", h.ID))
		s.alive, s.state, s.locks = []int{h.ID}, fmt.Sprint(top), []int{lock}
		all = append(all, s)
	}
	for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
		if id < h.ID && p.hosts[id].Incarnation == h.Incarnation {
			all = append(all, suspect(SeverityError, r, "incarnation", fmt.Sprintf("it has the incarnation of host %d", id),
				fmt.Sprintf("restart bakeryd on host %d", h.ID)))
		}
	}
	for _, v := range h.Verdicts {
		_, known := p.hosts[v.Host]
		_, hidden := p.damage(lockspace.KindHost, 0, v.Host)
		if !known && !hidden {
			s := suspect(SeverityWarning, r, "verdict", fmt.Sprintf("it has a verdict (%v) on host %d, which never joined", v.Kind, v.Host), remedyNone)
			s.state = fmt.Sprint(v)
			all = append(all, s)
		}
	}
	return all
}

// directoryRules checks the entries that can be read, each alone and all together.
func (p *picture) directoryRules(far uint64) (all []suspicion) {
	first := map[string]int{}
	for _, lock := range slices.Sorted(maps.Keys(p.entries)) {
		e := p.entries[lock]
		r := lockspace.Record{Kind: lockspace.KindEntry, Lock: lock, Offset: p.ex.space.Geometry.Entry(lock)}
		if e.Creation > far {
			all = append(all, suspect(SeverityWarning, r, "ahead", fmt.Sprintf("creation %d is years ahead of the clock", e.Creation),
				remedyNone+"; correct the clocks of the hosts"))
		}
		if e.Free() {
			continue
		}
		if hosts := p.ex.sb.Geometry.Hosts; e.Permits > hosts {
			all = append(all, suspect(SeverityWarning, r, "permits", fmt.Sprintf("lock %s has %d permits, the lockspace has %d hosts", text.Printable(e.Name), e.Permits, hosts),
				remedyNone+": the lock has more permits than hosts can use"))
		}
		other, twice := first[e.Name]
		if !twice {
			first[e.Name] = lock
			continue
		}
		s := suspect(SeverityError, r, "name", fmt.Sprintf("it has the name %s, as the entry of lock %d has: two hosts could hold it at the same time", text.Printable(e.Name), other),
			"stop the commands that use it; bakeryctl dump shows which of the two is in use")
		s.state, s.locks = fmt.Sprint(e, p.entries[other]), []int{other}
		all = append(all, s)
	}
	return all
}

// lockRules checks the slots of a lock and its entry.
func (p *picture) lockRules(lock int, far uint64) (all []suspicion) {
	e := p.entries[lock]
	if lock == lockspace.DirectoryLock {
		e = lockspace.DirectoryEntry
		all = append(all, p.intentRules()...)
	}
	_, unknown := p.damage(lockspace.KindEntry, lock, 0)
	top, whole := p.tickets(lock)
	for _, s := range p.slots[lock] {
		all = append(all, p.slotRules(s, far)...)
		if whole && s.ValueToken.Number() > top {
			all = append(all, p.ofSlot(SeverityWarning, s, "value", fmt.Sprintf("its value has token %v, above every ticket of the lock: a ticket is lost", s.ValueToken), remedyNone))
		}
		if !unknown {
			all = append(all, p.entrySlotRules(e, s)...)
		}
	}
	if !unknown {
		all = append(all, p.lostEntry(e, lock)...)
		all = append(all, p.exclusionRule(e, lock)...)
	}
	return all
}

// tickets returns the greatest ticket number of a lock, and whether all its slots could be read.
func (p *picture) tickets(lock int) (top uint64, whole bool) {
	for _, s := range p.slots[lock] {
		top = max(top, s.Ticket.Number())
	}
	return top, !slices.ContainsFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindSlot && r.Lock == lock })
}

func (p *picture) ofSlot(severity Severity, s layout.Slot, rule, problem, mend string) suspicion {
	f := suspect(severity, lockspace.Record{Kind: lockspace.KindSlot, Lock: s.Lock, Host: s.Host, Offset: p.ex.space.Geometry.Slot(s.Lock, s.Host)}, rule, problem, mend)
	f.state = fmt.Sprint(s.Incarnation, s.Sequence, s.Phase, s.Creation, s.Ticket)
	return f
}

// isRemovalMark reports whether a slot is the mark of a removal. Its creation is above its ticket
// number; that of a hold is below.
func isRemovalMark(s layout.Slot) bool {
	return s.Phase == layout.Held && s.Creation > s.Ticket.Number()
}

// slotRules checks a slot and its host.
func (p *picture) slotRules(s layout.Slot, far uint64) (all []suspicion) {
	restart := fmt.Sprintf("restart bakeryd on host %d", s.Host)
	h, known := p.hosts[s.Host]
	if _, hidden := p.damage(lockspace.KindHost, 0, s.Host); !known && !hidden {
		all = append(all, p.ofSlot(SeverityError, s, "stranger", fmt.Sprintf("host %d wrote it, but its record shows that it never joined: that record was lost", s.Host),
			fmt.Sprintf("start bakeryd on host %d", s.Host)))
	}
	if known && s.Phase != layout.Idle && h.Incarnation == s.Incarnation && h.State == layout.StateLeft {
		all = append(all, p.ofSlot(SeverityNote, s, "left", fmt.Sprintf("it is %v, and its host has left: it reads as idle", s.Phase), remedyNone))
	}
	if s.Ticket.Number() > far || s.Creation > far {
		all = append(all, p.ofSlot(SeverityWarning, s, "ahead", fmt.Sprintf("number %d or creation %d is years ahead of the clock", s.Ticket.Number(), s.Creation),
			remedyNone+"; correct the clocks of the hosts"))
	}
	if s.Lock == lockspace.DirectoryLock && s.Creation != lockspace.DirectoryCreation {
		all = append(all, p.ofSlot(SeverityError, s, "internal", fmt.Sprintf("creation %d, want %d in the internal lock", s.Creation, lockspace.DirectoryCreation), restart))
	}
	return all
}

// entrySlotRules checks a slot against the entry of its lock, which was read after the slot.
func (p *picture) entrySlotRules(e layout.Entry, s layout.Slot) (all []suspicion) {
	switch {
	case s.Phase == layout.Idle:
	case isRemovalMark(s):
		if s.Lock != lockspace.DirectoryLock && s.Creation > e.Creation && !e.Free() && p.ended(s.Host, s.Incarnation) {
			all = append(all, p.ofSlot(SeverityNote, s, "mark", fmt.Sprintf("host %d began to remove lock %s and ended: the lock stays", s.Host, text.Printable(e.Name)), remedyNone))
		}
	case s.Creation == e.Creation && s.Ticket != 0 && s.Ticket.Number() <= s.Creation && !p.ended(s.Host, s.Incarnation):
		all = append(all, p.ofSlot(SeverityError, s, "early", fmt.Sprintf("number %d was drawn before its lock was created at %d", s.Ticket.Number(), s.Creation),
			fmt.Sprintf("restart bakeryd on host %d", s.Host)))
	case (s.Creation < e.Creation || s.Creation == e.Creation && e.Free() && s.Lock != lockspace.DirectoryLock) && s.Phase != layout.Choosing && p.current(s):
		// A host that is choosing detects the removal when it reads the slots. The removal
		// should have waited for a host that had a number.
		f := p.ofSlot(SeverityError, s, "removed", fmt.Sprintf("it is %v by creation %d, and that lock was removed (%d)", s.Phase, s.Creation, e.Creation),
			fmt.Sprintf("stop the commands that hold it on host %d, and restart bakeryd there", s.Host))
		f.alive = []int{s.Host}
		all = append(all, f)
	}
	return all
}

// lostEntry checks that no slot refers to a newer entry than the one on the disk. Only the mark of
// a removal may. Any other slot has the creation of an entry that was on the disk before, and the
// creation of an entry only grows.
func (p *picture) lostEntry(e layout.Entry, lock int) []suspicion {
	var newest layout.Slot
	for _, s := range p.slots[lock] {
		if s.Creation > max(e.Creation, newest.Creation) && (!isRemovalMark(s) || e.Free()) {
			newest = s
		}
	}
	if newest.Creation == 0 || lock == lockspace.DirectoryLock {
		return nil
	}
	s := suspect(SeverityError, lockspace.Record{Kind: lockspace.KindEntry, Lock: lock, Offset: p.ex.space.Geometry.Entry(lock)}, "lost",
		fmt.Sprintf("its creation is %d, and the slot of host %d has creation %d: a write of the directory was lost or undone", e.Creation, newest.Host, newest.Creation),
		remedyRestartAll)
	s.state = fmt.Sprint(e, newest.Creation)
	return []suspicion{s}
}

// exclusionRule checks that a lock has no holders that exclude each other. It sees published holds
// only, and counts a holder only if its host is up.
func (p *picture) exclusionRule(e layout.Entry, lock int) (all []suspicion) {
	var holders []layout.Slot
	exclusive := 0
	for _, s := range p.slots[lock] {
		if s.Phase == layout.Held && s.Creation == e.Creation && p.current(s) {
			holders = append(holders, s)
			if s.Mode == layout.Exclusive {
				exclusive++
			}
		}
	}
	shared := len(holders) - exclusive
	if exclusive <= max(e.Permits, 1) && (exclusive == 0 || shared == 0) {
		return nil
	}
	for _, s := range holders {
		f := p.ofSlot(SeverityError, s, "exclusion", fmt.Sprintf("lock %s has %d exclusive and %d shared holders, and %d permits", text.Printable(e.Name), exclusive, shared, e.Permits),
			"stop the commands that hold it: the data they wrote may be damaged")
		f.alive = hostIDs(holders)
		all = append(all, f)
	}
	return all
}

func hostIDs(slots []layout.Slot) (ids []int) {
	for _, s := range slots {
		ids = append(ids, s.Host)
	}
	return ids
}

// intentRemedy returns the finding for an intent that does not decode.
func (p *picture) intentRemedy(s layout.Slot, err error) suspicion {
	if p.ended(s.Host, s.Incarnation) {
		return p.ofSlot(SeverityWarning, s, "intent", fmt.Sprintf("the directory intent of host %d does not decode: %v", s.Host, err),
			fmt.Sprintf("%s: host %d has ended, and its intent is void", remedyNone, s.Host))
	}
	return p.ofSlot(SeverityError, s, "intent",
		fmt.Sprintf("the directory intent of host %d does not decode, so no lock can be created: %v", s.Host, err),
		fmt.Sprintf("stop bakeryd on host %d by SIGINT and start it again; %s", s.Host, p.ifDead(s.Host)))
}

// intentRules checks the intents of hosts to write directory entries.
func (p *picture) intentRules() (all []suspicion) {
	for _, s := range p.slots[lockspace.DirectoryLock] {
		if len(s.Value) == 0 {
			continue
		}
		i, err := p.ex.space.DecodeIntent(s.Value)
		if err != nil {
			all = append(all, p.intentRemedy(s, err))
			continue
		}
		what := fmt.Sprintf("create lock %s", text.Printable(i.Name))
		if i.Name == "" {
			what = "free its place"
		}
		landed := p.entries[i.Lock] == layout.Entry(i)
		f := p.ofSlot(SeverityWarning, s, "intended", "", "")
		f.locks = []int{i.Lock}
		switch over := p.ended(s.Host, s.Incarnation); {
		case !slices.Contains(p.locks, i.Lock): // reconfirm reads the entry
		case over && landed:
			f.Severity, f.Remedy = SeverityNote, remedyNone
			f.Problem = fmt.Sprintf("host %d ended after it wrote entry %d, to %s", s.Host, i.Lock, what)
		case over:
			f.Problem = fmt.Sprintf("host %d ended while it wrote entry %d, to %s; its write may land late: no other lock is created there", s.Host, i.Lock, what)
			f.Remedy = fmt.Sprintf("%s; the place becomes free when host %d has joined and created a lock", remedyNone, s.Host)
		case s.Phase == layout.Idle:
			f.Problem = fmt.Sprintf("host %d failed to write entry %d, to %s", s.Host, i.Lock, what)
			f.Remedy = fmt.Sprintf("%s: host %d writes it before it creates a lock", remedyNone, s.Host)
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}
