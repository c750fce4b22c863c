package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// Finding is a violation, or a possible one.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	At       Moment      `json:"at"`
	Until    Moment      `json:"until"`
	Lock     int         `json:"lock"`     // index
	Attempts []int       `json:"attempts"` // indexes of the attempts in it
	Text     string      `json:"text"`

	attempts []*Attempt
}

// FindingKind is a kind of finding.
type FindingKind string

// The kinds of findings. The last two are not violations by themselves (undecided).
const (
	TwoHolders FindingKind = "two holders" // more holders than allowed, at one time
	TokenBack  FindingKind = "token back"  // a grant has a smaller token than one before it
	TokenTwice FindingKind = "token twice"
	Late       FindingKind = "late"  // a hold outlasted the verdict on its host, or its lease
	Doubt      FindingKind = "doubt" // wrong clocks, or two holders: the journals do not decide
)

// undecided has the kinds of findings that are no violations, the worst first.
var undecided = []FindingKind{Doubt, Late}

// Proven reports whether the finding is a violation: no clocks explain it.
func (f *Finding) Proven() bool { return !slices.Contains(undecided, f.Kind) }

// farOff is a difference of clocks that is rare, in us. If only hand-overs in one direction
// indicate such a difference, it may have another cause.
const farOff = 1000 * 1000

// maxFindings bounds the number of kept findings.
const maxFindings = 2000

// phase is the time during which a hold had one mode.
type phase struct {
	*Attempt
	shared     bool
	doubt      bool // the journals do not prove it
	from, till Moment
}

// judge searches for violations.
func (t *Timeline) judge(c *clocks) {
	for _, l := range t.Locks {
		t.judgeOverlaps(c, t.phases(l.holds))
		t.judgeTokens(c, l)
	}
	t.judgeLate(c)
	t.judgeClocks(c)
	if t.more > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("there are %d findings more than are shown", t.more))
	}
	slices.SortStableFunc(t.Findings, func(a, b *Finding) int { // violations first
		return cmp.Or(cmp.Compare(slices.Index(undecided, a.Kind), slices.Index(undecided, b.Kind)), cmp.Compare(a.At, b.At))
	})
}

// found adds a finding about attempts at one lock, up to maxFindings.
func (t *Timeline) found(f Finding, attempts ...*Attempt) {
	if len(t.Findings) >= maxFindings {
		t.more++
		return
	}
	f.attempts, f.Lock = attempts, attempts[0].Lock
	t.Findings = append(t.Findings, &f)
}

// phases returns the phases of holds, by time, until their leases may have ended.
func (t *Timeline) phases(holds []*Attempt) (all []phase) {
	for _, a := range holds {
		until, atMost := t.stands(a)
		modes := append([]ModeChange{{At: a.Entered, Shared: a.Shared}}, a.Modes...)
		for i, m := range modes {
			from, till := m.At, max(a.Sure, m.At)
			if i+1 < len(modes) {
				till = modes[i+1].At
			}
			known := min(max(from, a.known), till) // if the grant is missing, it is known that it was by then
			early := from
			if a.entered.Kind == events.Resumed { // says only when the lock was requested
				early = known
			}
			sure := min(max(known, until), till)
			if known < sure || from == till && a.known <= from && from <= until {
				all = append(all, phase{a, m.Shared, false, known, sure})
			}
			for _, p := range []phase{{a, m.Shared, true, early, known}, {a, m.Shared, true, sure, min(max(sure, atMost), till)}} {
				if p.from < p.till {
					all = append(all, p)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b phase) int { return cmp.Compare(a.from, b.from) })
	return all
}

// stands returns until when a hold certainly excluded others, and until when at most: then its host
// was dead, or had lost its lease. A stalled or cut-off host records its hold when it runs again,
// or when it gives up. Other hosts may rightly hold the lock by then, because they had declared it
// dead. Until the host notices, its command is no second holder, but late (judgeLate).
func (t *Timeline) stands(a *Attempt) (until, atMost Moment) {
	until, atMost = a.Sure, a.Sure
	switch {
	case a.Verdict != Never:
		end := a.Verdict
		// A host that grants other locks for longer than wakes after the verdict was not stalled.
		if first, last := t.grants(a, a.Verdict, a.Sure); last != Never && last-first >= wakes {
			end = last
		}
		if until = min(a.Sure, end); a.Entered <= end {
			atMost = until // otherwise, by the host's records, it was granted after the verdict
		}
	case a.Lost != Never || a.waking(): // a verdict on it is not known
		if a.Lost != Never {
			atMost = min(a.Sure, a.Lost)
		}
		_, last := t.grants(a, Never, atMost)
		until = min(atMost, max(a.Entered, last))
	}
	return until, atMost
}

// grants returns the first and last moment in a time at which the host of a hold acted under a
// lease, in that incarnation.
func (t *Timeline) grants(a *Attempt, after, until Moment) (first, last Moment) {
	all := t.leased[life{a.Host, a.Incarnation}]
	from, _ := slices.BinarySearch(all, after+1)
	till, _ := slices.BinarySearch(all, until+1)
	if from >= till {
		return Never, Never
	}
	return all[from], all[till-1]
}

// judgeOverlaps goes through the holds by time, with those that still last.
func (t *Timeline) judgeOverlaps(c *clocks, all []phase) {
	var inside []phase
	for _, p := range all {
		inside = slices.DeleteFunc(inside, func(q phase) bool { return q.till <= p.from })
		var writers []phase
		for _, q := range inside {
			switch {
			case q.Attempt == p.Attempt, q.shared && p.shared:
			case q.shared != p.shared || allowed(q, p) == 1:
				t.overlap(c, q, p)
			default:
				writers = append(writers, q)
			}
		}
		if together := append(writers, p); len(writers) >= allowed(together...) {
			t.overlap(c, together...)
		}
		inside = append(inside, p)
	}
}

// allowed returns how many of several exclusive holds may coincide. A lock that was created again
// may have another number of permits.
func allowed(all ...phase) (permits int) {
	for _, p := range all {
		permits = max(permits, cmp.Or(p.permits, p.lock.Permits))
	}
	return permits
}

// overlap judges holds that coincide by the corrected clocks.
func (t *Timeline) overlap(c *clocks, all ...phase) {
	if len(t.Findings) >= maxFindings {
		t.more++
		return
	}
	f := Finding{Kind: TwoHolders, At: all[0].from, Until: all[0].till}
	var holds []*Attempt
	for i, p := range all {
		holds = append(holds, p.Attempt)
		f.At, f.Until = max(f.At, p.from), min(f.Until, p.till)
		apart := func(q phase) bool { return apart(c, &q, &p) }
		if p.doubt || slices.ContainsFunc(all[:i], apart) {
			f.Kind = Doubt
		}
	}
	if !f.Proven() && int64(f.Until-f.At) <= c.slip {
		return
	}
	for _, old := range t.Findings { // the same holds, in another mode, or later
		if (old.Kind == f.Kind || old.Proven()) && sameHolds(old.attempts, holds) {
			return
		}
	}
	f.Text = overlapText(&f, holds, allowed(all...))
	t.found(f, holds...)
}

func sameHolds(a, b []*Attempt) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x *Attempt) bool { return !slices.Contains(b, x) })
}

func overlapText(f *Finding, holds []*Attempt, permits int) string {
	var who []string
	for _, a := range holds {
		who = append(who, a.holder())
	}
	text := fmt.Sprintf("%s held %s at the same time for %s", strings.Join(who, " and "), holds[0].lock.Name, length(int64(f.Until-f.At)))
	if permits > 1 {
		text += fmt.Sprintf(" (%d may)", permits)
	}
	for _, a := range holds {
		switch {
		case a.Verdict != Never:
			text += fmt.Sprintf("; %s had been declared dead: only tokens, fencing or a watchdog stop writes of commands that still run there", a.host.Name)
		case a.Lost != Never:
			text += fmt.Sprintf("; %s had lost its lease", a.host.Name)
		}
	}
	if !f.Proven() {
		text += "; or their clocks disagree by more than the journals show, or one of them was stalled: the journals do not decide"
	}
	return text
}

func (a *Attempt) holder() string { return fmt.Sprintf("%s (token %s)", a.host.Name, a.Token) }

// apart reports whether one of two phases can have ended before the other began, with any
// possible clocks.
func apart(c *clocks, p, q *phase) bool {
	if c.failed[order{p.exited, q.entered}] || c.failed[order{q.exited, p.entered}] {
		return false
	}
	before := func(p, q *phase) bool {
		return c.possible(p.entered, int64(p.till-p.entered.at)-int64(q.from-q.entered.at), q.entered)
	}
	return before(p, q) || before(q, p)
}

// judgeTokens searches for tokens that decrease over time, or that two holds have.
func (t *Timeline) judgeTokens(c *clocks, l *Lock) {
	granted := slices.DeleteFunc(slices.Clone(l.holds), func(a *Attempt) bool { return a.Token == 0 })
	for i, a := range granted[min(1, len(granted)):] {
		if first := granted[i]; first.Token == a.Token {
			t.found(Finding{Kind: TokenTwice, At: a.Entered, Until: a.Ended,
				Text: fmt.Sprintf("%s and %s were granted %s with one token, %s", first.host.Name, a.host.Name, a.lock.Name, a.Token)}, first, a)
		}
	}
	slices.SortStableFunc(granted, byEntry)
	if l.Permits > 1 {
		t.judgeTokensOfMany(c, granted)
		return
	}
	var greatest, writer *Attempt // among earlier holds: the greatest of all, and of exclusive ones
	for _, a := range granted {
		over := greatest
		if a.Shared {
			over = writer
		}
		if over != nil && over.Token > a.Token {
			t.tokenBack(c, over, a)
		}
		if greatest.below(a) {
			greatest = a
		}
		if !a.Shared && writer.below(a) {
			writer = a
		}
	}
}

func byEntry(a, b *Attempt) int { return cmp.Compare(a.Entered, b.Entered) }

// below reports whether a is nil or has a smaller token than b.
func (a *Attempt) below(b *Attempt) bool { return a == nil || a.Token < b.Token }

// judgeTokensOfMany handles several permits. A token is greater than those of the exclusive holds
// that had ended when its ticket was drawn. That may have been for an earlier client of the host,
// which handed the lock over.
func (t *Timeline) judgeTokensOfMany(c *clocks, granted []*Attempt) {
	if len(granted) == 0 {
		return
	}
	drawn := t.ticketsDrawn(granted)
	at := func(a *Attempt) Moment { return drawn[a.slotTicket()] }
	ended := slices.SortedStableFunc(slices.Values(granted), func(a, b *Attempt) int { return cmp.Compare(a.Ended, b.Ended) })
	var greatest *Attempt
	for _, a := range slices.SortedStableFunc(slices.Values(granted), func(a, b *Attempt) int { return cmp.Compare(at(a), at(b)) }) {
		for ; len(ended) > 0 && ended[0].Ended < at(a); ended = ended[1:] {
			if e := ended[0]; !e.Shared && e.exited != nil && greatest.below(e) {
				greatest = e
			}
		}
		if !a.Shared && greatest != nil && greatest.Token > a.Token && !c.possible(a.entered, int64(at(a)-a.entered.at), greatest.exited) {
			t.tokenBack(c, greatest, a)
		}
	}
}

// slotTicket returns the ticket of the host, without the grant to a client.
func (a *Attempt) slotTicket() layout.Ticket { return a.Token &^ (layout.MaxGrants - 1) }

// ticketsDrawn returns when the tickets of holds of one lock were drawn: for a client that was
// granted the lock, or for one of the same host that gave up before.
func (t *Timeline) ticketsDrawn(granted []*Attempt) map[layout.Ticket]Moment {
	drawn := map[layout.Ticket]Moment{}
	for _, a := range granted {
		if at, ok := drawn[a.slotTicket()]; !ok || a.begin() < at {
			drawn[a.slotTicket()] = a.begin()
		}
	}
	gaveUp := map[int][]*Attempt{} // by host
	for _, a := range t.Attempts {
		if a.Lock == granted[0].Lock && !a.held() && max(a.Choosing, a.Numbered) != Never {
			gaveUp[a.Host] = append(gaveUp[a.Host], a)
		}
	}
	for _, all := range gaveUp {
		slices.SortFunc(all, func(a, b *Attempt) int { return cmp.Compare(a.Ended, b.Ended) })
	}
	for _, a := range granted {
		at, all := drawn[a.slotTicket()], gaveUp[a.Host]
		k, _ := slices.BinarySearchFunc(all, a.Entered+1, func(g *Attempt, at Moment) int { return cmp.Compare(g.Ended, at) })
		for k--; k >= 0 && all[k].Ended >= at; k-- { // each may have used the ticket of the previous one
			at = min(at, all[k].begin())
		}
		drawn[a.slotTicket()] = at
	}
	return drawn
}

// tokenBack adds a finding for a token that decreases. The clocks were corrected by the tokens,
// so clocks do not explain it. Where both hold at the same time there is a finding already.
func (t *Timeline) tokenBack(c *clocks, b, a *Attempt) {
	if max(b.Entered, b.known) > a.Entered {
		return // one of the grants is missing: their order is unknown
	}
	if b.entered.clock != a.entered.clock && c.possible(a.entered, 0, b.entered) && a.lock.Permits == 1 {
		return
	}
	for _, f := range t.Findings {
		if (f.Kind == TwoHolders || f.Kind == Doubt) && sameHolds(f.attempts, []*Attempt{b, a}) {
			return
		}
	}
	f := Finding{Kind: TokenBack, At: a.Entered, Until: a.Ended,
		Text: fmt.Sprintf("%s was granted %s with token %s, after %s held it", a.host.Name, a.lock.Name, a.Token, b.holder())}
	if a.Verdict != Never && a.Entered > a.Verdict || a.Lost != Never && a.Lost-a.Entered <= wakes {
		f.Kind = Doubt
		f.Text += "; or its host was stalled between the grant and the record of it: the journals do not decide"
	}
	t.found(f, b, a)
}

// judgeLate searches for holds that outlasted the verdict on their host, or its lease while
// others held the lock.
func (t *Timeline) judgeLate(c *clocks) {
	for _, a := range t.Attempts {
		over, why := a.Verdict, "it had been declared dead"
		if over == Never {
			over, why = a.Lost, "its host had lost its lease"
		}
		if !a.held() || over == Never || int64(a.Sure-over) <= c.slip {
			continue
		}
		others := a.meanwhile(over)
		if a.Verdict == Never && len(others) == 0 {
			continue // stopping takes a moment
		}
		text := fmt.Sprintf("by its journal %s still held %s %s after %s: if its command ran on, only tokens, fencing or a watchdog stopped its writes",
			a.holder(), a.lock.Name, length(int64(a.Sure-over)), why)
		if len(others) > 0 {
			text += fmt.Sprintf("; meanwhile %s held it", others[0].holder())
			if n := len(others) - 1; n > 0 {
				text += fmt.Sprintf(", and %d after that", n)
			}
		}
		t.found(Finding{Kind: Late, At: over, Until: a.Sure, Text: text}, a)
	}
}

// meanwhile returns the holds of a lock with one permit that conflict with a hold that was over
// by then.
func (a *Attempt) meanwhile(over Moment) (others []*Attempt) {
	for _, b := range a.lock.holds {
		if b != a && a.lock.Permits == 1 && b.Entered < a.Sure && b.Sure > over && b.Token > a.Token &&
			!(a.sharedNow() && b.Shared) {
			others = append(others, b)
		}
	}
	slices.SortStableFunc(others, byEntry)
	return others
}

// judgeClocks searches for hand-overs that only very wrong clocks explain.
func (t *Timeline) judgeClocks(c *clocks) {
	for _, o := range t.tokenOrder() {
		by := o.excess()
		// There may be more of a difference: it has no bound in the other direction.
		if by <= farOff || o.before.clock == o.after.clock || c.atLeast[o.after.node][o.before.node] != unknown {
			continue
		}
		a, b := o.before.attempt, o.after.attempt
		t.found(Finding{Kind: Doubt, At: b.Entered, Until: b.Ended,
			Text: fmt.Sprintf("by the clocks %s was granted %s %s before %s released it; their tokens are in order, so their clocks disagree by that or more, or both held it at the same time: the journals do not decide",
				b.holder(), b.lock.Name, time.Duration(by)*time.Microsecond, a.holder())}, a, b)
	}
}
