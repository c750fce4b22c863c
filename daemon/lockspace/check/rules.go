package check

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
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
func (p *picture) suspicions(now time.Time) []*suspicion {
	p.found = nil
	p.superblockRules()
	p.copyRules()
	far := bakery.ClockNumber(now.Add(farAhead), now)
	for _, r := range p.damaged {
		p.damageRule(r)
	}
	for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
		p.hostRules(p.hosts[id])
	}
	p.directoryRules(far)
	for _, lock := range p.locks {
		p.lockRules(lock, far)
	}
	return p.found
}

// suspect adds a suspicion and returns it, for the rule to complete.
func (p *picture) suspect(severity Severity, r lockspace.Record, rule, problem, remedy string) *suspicion {
	s := &suspicion{suspicionKey: suspicionKey{offset: r.Offset, rule: rule}, Finding: Finding{Severity: severity, What: r.Describe(), Kind: r.Kind, Lock: r.Lock, Host: r.Host,
		Offset: r.Offset, Problem: problem, Remedy: remedy}}
	p.found = append(p.found, s)
	return s
}

func (p *picture) suspectHost(severity Severity, host int, rule, problem, remedy string) *suspicion {
	return p.suspect(severity, lockspace.HostAt(p.ex.sb.Geometry, host), rule, problem, remedy)
}

func (p *picture) suspectEntry(severity Severity, lock int, rule, problem, remedy string) *suspicion {
	return p.suspect(severity, lockspace.EntryAt(p.ex.sb.Geometry, lock), rule, problem, remedy)
}

func (p *picture) suspectSlot(severity Severity, s layout.Slot, rule, problem, remedy string) *suspicion {
	f := p.suspect(severity, lockspace.SlotAt(p.ex.sb.Geometry, s.Lock, s.Host), rule, problem, remedy)
	f.state = fmt.Sprint(s.Incarnation, s.Sequence, s.Phase, s.Creation, s.Ticket)
	return f
}

// superblockRules checks the superblock, its copy, and the block size of the device.
func (p *picture) superblockRules() {
	others := []string{"the copy", "the superblock"}
	for i, r := range p.super {
		if r.Err == nil {
			continue
		}
		s := p.suspect(SeverityError, r, "superblock", p.problemText(r), remedyRepair+"writes it again from "+others[i]+", which is whole")
		s.Repair = p.super[1-i].Err == nil && !r.OtherLockspace
		switch {
		case p.ex.members != nil: // each disk has findings of its own
			s.Repair, s.Remedy = false, "repair it on each disk"
		case !s.Repair:
			s.Remedy = "compare both with bakeryctl dump: hosts use the one at byte 0; only the operator knows which is right"
		}
	}
	g, info := p.ex.sb.Geometry, p.ex.Info()
	if physical := info.PhysicalBlock; g.Stride < physical && !info.Regular {
		p.suspect(SeverityWarning, p.super[0], "stride", fmt.Sprintf("stride %d is below the physical block size of %d: "+
			"a write of one host may damage the records of others", g.Stride, physical), "run bakeryctl format, which takes the stride from the device")
	}
}

// problemText returns the error of a record without the name of the record, which the finding has.
func (p *picture) problemText(r lockspace.Record) string {
	if p.ex.members != nil && errors.Is(r.Err, layout.ErrMagic) { // of the block that package mirror returns
		return "no majority of the disks has a valid copy"
	}
	text := r.Err.Error()
	if _, rest, ok := strings.Cut(text, fmt.Sprintf(" at byte %d: ", r.Offset)); ok {
		return rest
	}
	return strings.TrimPrefix(text, r.Describe()+": ")
}

// damageRule checks a record that cannot be read or decoded.
func (p *picture) damageRule(r lockspace.Record) {
	s := p.suspect(SeverityError, r, "damaged", p.problemText(r), "")
	switch r.Kind {
	case lockspace.KindHost:
		s.Repair = true
		within := (timing.Of(p.ex.sb).Alive() + time.Second/10).Truncate(time.Second / 10)
		s.Remedy = fmt.Sprintf("if bakeryd runs on host %d it writes the record within %v; if not, %s%swrites it",
			r.Host, within, p.mustBeOff(r.Host), remedyRepair)
	case lockspace.KindEntry:
		s.Repair = true
		s.Remedy = p.planEntryRepair(r.Lock, p.hostsMaybeUp()).adviceText()
	case lockspace.KindSlot:
		s.Severity, s.Remedy = p.slotRemedy(r)
	}
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
	switch {
	case p.hostHidden(r.Host):
		return SeverityError, fmt.Sprintf("repair the record of host %d first: then the slot is rewritten or reads as idle", r.Host)
	case !known:
		return SeverityWarning, fmt.Sprintf("%s: host %d never joined, and rewrites it if it does", remedyNone, r.Host)
	case p.gone(r.Host):
		return SeverityWarning, fmt.Sprintf("%s: host %d is gone, and the slot reads as idle; its next bakeryd rewrites it", remedyNone, r.Host)
	case r.Lock != lockspace.DirectoryLock && p.entries[r.Lock].Free() && !p.entryHidden(r.Lock):
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
	if p.verdicts[lockspace.HostIncarnation{Host: host, Incarnation: incarnation}].Dead {
		return true
	}
	h, known := p.hosts[host]
	return !p.hostHidden(host) && (!known || h.Incarnation != incarnation || h.State == layout.StateLeft)
}

// gone reports whether the record of a host can be read and shows that no incarnation of it is up.
func (p *picture) gone(host int) bool {
	return !p.hostHidden(host) && p.ended(host, p.hosts[host].Incarnation)
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
func (p *picture) hostRules(h layout.HostRecord) {
	restart := fmt.Sprintf("restart bakeryd on host %d", h.ID)
	if top, lock := p.highestTaker(); h.State == layout.StateLive && h.ReadHorizon < top && !p.ended(h.ID, h.Incarnation) {
		s := p.suspectHost(SeverityError, h.ID, "highest",
			fmt.Sprintf("it covers hosts up to %d, and host %d takes locks: host %d may not see them", h.ReadHorizon, top, h.ID), restart)
		s.alive, s.state, s.locks = []int{h.ID}, fmt.Sprint(top), []int{lock}
	}
	for _, id := range slices.Sorted(maps.Keys(p.hosts)) {
		if id < h.ID && p.hosts[id].Incarnation == h.Incarnation {
			p.suspectHost(SeverityError, h.ID, "incarnation", fmt.Sprintf("it has the incarnation of host %d", id), restart)
		}
	}
	for _, v := range h.Verdicts {
		if _, known := p.hosts[v.Host]; !known && !p.hostHidden(v.Host) {
			s := p.suspectHost(SeverityWarning, h.ID, "verdict", fmt.Sprintf("it has a verdict (%v) on host %d, which never joined", v.Kind, v.Host), remedyNone)
			s.state = fmt.Sprint(v)
		}
	}
}

// directoryRules checks the entries that can be read, each alone and all together.
func (p *picture) directoryRules(far uint64) {
	first := map[string]int{}
	for _, lock := range slices.Sorted(maps.Keys(p.entries)) {
		e := p.entries[lock]
		if e.Creation > far {
			p.suspectEntry(SeverityWarning, lock, "ahead", fmt.Sprintf("creation %d is years ahead of the clock", e.Creation),
				remedyNone+"; correct the clocks of the hosts")
		}
		if e.Free() {
			continue
		}
		if hosts := p.ex.sb.Geometry.Hosts; e.Permits > hosts {
			p.suspectEntry(SeverityWarning, lock, "permits", fmt.Sprintf("lock %s has %d permits, the lockspace has %d hosts", text.Printable(e.Name), e.Permits, hosts),
				remedyNone+": the lock has more permits than hosts can use")
		}
		other, twice := first[e.Name]
		if !twice {
			first[e.Name] = lock
			continue
		}
		s := p.suspectEntry(SeverityError, lock, "name", fmt.Sprintf("it has the name %s, as the entry of lock %d has: two hosts could hold it at the same time", text.Printable(e.Name), other),
			"stop the commands that use it; bakeryctl dump shows which of the two is in use")
		s.state, s.locks = fmt.Sprint(e, p.entries[other]), []int{other}
	}
}

// lockRules checks the slots of a lock and its entry.
func (p *picture) lockRules(lock int, far uint64) {
	e := p.entries[lock]
	if lock == lockspace.DirectoryLock {
		e = lockspace.DirectoryEntry
		p.intentRules()
	}
	known := !p.entryHidden(lock)
	top, whole := p.tickets(lock)
	for _, s := range p.slots[lock] {
		p.slotRules(s, far)
		if whole && s.ValueToken.Number() > top {
			p.suspectSlot(SeverityWarning, s, "value", fmt.Sprintf("its value has token %v, above every ticket of the lock: a ticket is lost", s.ValueToken), remedyNone)
		}
		if known {
			p.entrySlotRules(e, s)
		}
	}
	if known {
		p.lostEntry(e, lock)
		p.exclusionRule(e, lock)
	}
}

// tickets returns the greatest ticket number of a lock, and whether all its slots could be read.
func (p *picture) tickets(lock int) (top uint64, whole bool) {
	for _, s := range p.slots[lock] {
		top = max(top, s.Ticket.Number())
	}
	return top, !slices.ContainsFunc(p.damaged, func(r lockspace.Record) bool { return r.Kind == lockspace.KindSlot && r.Lock == lock })
}

// isRemovalMark reports whether a slot is the mark of a removal. Its creation is above its ticket
// number; that of a hold is below.
func isRemovalMark(s layout.Slot) bool {
	return s.Phase == layout.Held && s.Creation > s.Ticket.Number()
}

// slotRules checks a slot and its host.
func (p *picture) slotRules(s layout.Slot, far uint64) {
	restart := fmt.Sprintf("restart bakeryd on host %d", s.Host)
	h, known := p.hosts[s.Host]
	if !known && !p.hostHidden(s.Host) {
		p.suspectSlot(SeverityError, s, "stranger", fmt.Sprintf("host %d wrote it, but its record shows that it never joined: that record was lost", s.Host),
			fmt.Sprintf("start bakeryd on host %d", s.Host))
	}
	if known && s.Phase != layout.Idle && h.Incarnation == s.Incarnation && h.State == layout.StateLeft {
		p.suspectSlot(SeverityNote, s, "left", fmt.Sprintf("it is %v, and its host has left: it reads as idle", s.Phase), remedyNone)
	}
	if s.Ticket.Number() > far || s.Creation > far {
		p.suspectSlot(SeverityWarning, s, "ahead", fmt.Sprintf("number %d or creation %d is years ahead of the clock", s.Ticket.Number(), s.Creation),
			remedyNone+"; correct the clocks of the hosts")
	}
	if s.Lock == lockspace.DirectoryLock && s.Creation != lockspace.DirectoryCreation {
		p.suspectSlot(SeverityError, s, "internal", fmt.Sprintf("creation %d, want %d in the internal lock", s.Creation, lockspace.DirectoryCreation), restart)
	}
}

// entrySlotRules checks a slot against the entry of its lock, which was read after the slot.
func (p *picture) entrySlotRules(e layout.Entry, s layout.Slot) {
	switch {
	case s.Phase == layout.Idle:
	case isRemovalMark(s):
		if s.Lock != lockspace.DirectoryLock && s.Creation > e.Creation && !e.Free() && p.ended(s.Host, s.Incarnation) {
			p.suspectSlot(SeverityNote, s, "mark", fmt.Sprintf("host %d began to remove lock %s and ended: the lock stays", s.Host, text.Printable(e.Name)), remedyNone)
		}
	case s.Creation == e.Creation && s.Ticket != 0 && s.Ticket.Number() <= s.Creation && !p.ended(s.Host, s.Incarnation):
		p.suspectSlot(SeverityError, s, "early", fmt.Sprintf("number %d was drawn before its lock was created at %d", s.Ticket.Number(), s.Creation),
			fmt.Sprintf("restart bakeryd on host %d", s.Host))
	case (s.Creation < e.Creation || s.Creation == e.Creation && e.Free() && s.Lock != lockspace.DirectoryLock) && s.Phase != layout.Choosing && p.current(s):
		// A host that is choosing detects the removal when it reads the slots. The removal
		// should have waited for a host that had a number.
		f := p.suspectSlot(SeverityError, s, "removed", fmt.Sprintf("it is %v by creation %d, and that lock was removed (%d)", s.Phase, s.Creation, e.Creation),
			fmt.Sprintf("stop the commands that hold it on host %d, and restart bakeryd there", s.Host))
		f.alive = []int{s.Host}
	}
}

// lostEntry checks that no slot refers to a newer entry than the one on the disk. Only the mark of
// a removal may. Any other slot has the creation of an entry that was on the disk before, and the
// creation of an entry only grows.
func (p *picture) lostEntry(e layout.Entry, lock int) {
	var newest layout.Slot
	for _, s := range p.slots[lock] {
		if s.Creation > max(e.Creation, newest.Creation) && (!isRemovalMark(s) || e.Free()) {
			newest = s
		}
	}
	if newest.Creation == 0 || lock == lockspace.DirectoryLock {
		return
	}
	s := p.suspectEntry(SeverityError, lock, "lost",
		fmt.Sprintf("its creation is %d, and the slot of host %d has creation %d: a write of the directory was lost or undone", e.Creation, newest.Host, newest.Creation),
		remedyRestartAll)
	s.state = fmt.Sprint(e, newest.Creation)
}

// exclusionRule checks that a lock has no holders that exclude each other. It sees published holds
// only, and counts a holder only if its host is up.
func (p *picture) exclusionRule(e layout.Entry, lock int) {
	var holders []layout.Slot
	var hosts []int
	exclusive := 0
	for _, s := range p.slots[lock] {
		if s.Phase == layout.Held && s.Creation == e.Creation && p.current(s) {
			holders, hosts = append(holders, s), append(hosts, s.Host)
			if s.Mode == layout.Exclusive {
				exclusive++
			}
		}
	}
	shared := len(holders) - exclusive
	if exclusive <= max(e.Permits, 1) && (exclusive == 0 || shared == 0) {
		return
	}
	for _, s := range holders {
		f := p.suspectSlot(SeverityError, s, "exclusion", fmt.Sprintf("lock %s has %d exclusive and %d shared holders, and %d permits", text.Printable(e.Name), exclusive, shared, e.Permits),
			"stop the commands that hold it: the data they wrote may be damaged")
		f.alive = hosts
	}
}

// intentRules checks the intents of hosts to write directory entries.
func (p *picture) intentRules() {
	for _, s := range p.slots[lockspace.DirectoryLock] {
		if len(s.Value) == 0 {
			continue
		}
		over := p.ended(s.Host, s.Incarnation)
		i, err := p.ex.sb.Space().DecodeIntent(s.Value)
		i.Token, i.Sequence = 0, 0
		if err != nil && over {
			p.suspectSlot(SeverityWarning, s, "intent", fmt.Sprintf("the directory intent of host %d does not decode: %v", s.Host, err),
				fmt.Sprintf("%s: host %d has ended, and its intent is void", remedyNone, s.Host))
			continue
		}
		if err != nil {
			p.suspectSlot(SeverityError, s, "intent", fmt.Sprintf("the directory intent of host %d does not decode, so no lock can be created: %v", s.Host, err),
				fmt.Sprintf("stop bakeryd on host %d by SIGINT and start it again; %s", s.Host, p.ifDead(s.Host)))
			continue
		}
		what := fmt.Sprintf("create lock %s", text.Printable(i.Name))
		if i.Name == "" {
			what = "free its place"
		}
		severity, problem, remedy := SeverityWarning, "", ""
		switch landed := p.entries[i.Lock] == layout.Entry(i); {
		case !slices.Contains(p.locks, i.Lock): // reconfirm reads the entry
		case over && landed:
			severity, remedy = SeverityNote, remedyNone
			problem = fmt.Sprintf("host %d ended after it wrote entry %d, to %s", s.Host, i.Lock, what)
		case over:
			problem = fmt.Sprintf("host %d ended while it wrote entry %d, to %s; its write may land late: no other lock is created there", s.Host, i.Lock, what)
			remedy = fmt.Sprintf("%s; the place becomes free when host %d has joined and created a lock", remedyNone, s.Host)
		case s.Phase == layout.Idle:
			problem = fmt.Sprintf("host %d failed to write entry %d, to %s", s.Host, i.Lock, what)
			remedy = fmt.Sprintf("%s: host %d writes it before it creates a lock", remedyNone, s.Host)
		default:
			continue
		}
		p.suspectSlot(severity, s, "intended", problem, remedy).locks = []int{i.Lock}
	}
}
