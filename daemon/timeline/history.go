package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Attempt is the history of one request for a lock. Unknown moments are Never. Ended is always
// set; End shows whether it is a guess.
type Attempt struct {
	Host        int           `json:"host"` // index
	Lock        int           `json:"lock"` // index
	Incarnation text.Hex      `json:"incarnation,omitzero"`
	PID         int           `json:"pid,omitempty"`
	Command     string        `json:"command,omitempty"`
	Shared      bool          `json:"shared,omitempty"` // as requested, and as granted
	Token       layout.Ticket `json:"token,omitzero"`
	Ticket      layout.Ticket `json:"ticket,omitzero"`

	Asked    Moment `json:"asked,omitzero"`
	Choosing Moment `json:"choosing,omitzero"`
	Numbered Moment `json:"numbered,omitzero"`
	Entered  Moment `json:"entered,omitzero"`
	Ended    Moment `json:"ended"`

	End     End          `json:"end"`
	Reason  string       `json:"reason,omitempty"`
	Behind  string       `json:"behind,omitempty"` // the last one it waited for
	Modes   []ModeChange `json:"modes,omitempty"`
	Marks   []Mark       `json:"marks,omitempty"`  // lost, kill, remains, orphan, resumed
	Lost    Moment       `json:"lost,omitzero"`    // when the hold was lost
	Verdict Moment       `json:"verdict,omitzero"` // when its host was declared dead
	Sure    Moment       `json:"sure,omitzero"`    // the hold, or without one the wait, lasted at least until then
	Waited  Moment       `json:"waited,omitzero"`  // what counts as its wait and its hold, in us (lengths.go)
	Held    Moment       `json:"held,omitzero"`

	cut             Moment // when its bakeryd restarted, and did not resume it yet
	permits         int    // of the lock when it was granted; 0: unknown
	oldVerdict      bool   // its host was dead earlier than Verdict
	doubted         bool   // the journal may lack an end
	known           Moment // first event about the hold if its grant is missing; else Never
	key             attemptKey
	entered, exited *record
	next            Moment // when the lock was granted next, by the tokens; Never if that is not known

	host *Host
	lock *Lock
}

// ModeChange is a holder's change from exclusive to shared, or back.
type ModeChange struct {
	At     Moment `json:"at"`
	Shared bool   `json:"shared"`
}

// End is how an attempt ended.
type End string

// The ends of attempts. The last four are guesses: the journals have no end.
const (
	Released  End = "released"
	Removed   End = "removed" // it has removed the lock
	TimedOut  End = "timeout"
	Cancelled End = "cancel"
	WasBusy   End = "busy"
	Refused   End = "refused"

	DeclaredDead End = "dead"   // its host was declared dead
	Unseen       End = "unseen" // at some time before its host restarted, or another host entered
	Open         End = "open"   // it lasts until the end of the journals
	HostLost     End = "lost"   // the lease of its host was lost
)

// held reports whether the lock was held.
func (a *Attempt) held() bool { return a.Entered != Never }

func (a *Attempt) begin() Moment { return cmp.Or(a.Asked, a.Choosing, a.Numbered, a.Entered, a.Ended) }

// historian processes the events of one host after the other.
type historian struct {
	*Timeline
	*journals
	lockAt map[string]int // index by name

	// Of the present journal:
	open  map[attemptKey]*Attempt
	ofPID map[attemptKey][]*Attempt // by process: those that ofProcess returns, and some that are over
	over  map[attemptKey]*Attempt   // ended holds, by token
	dead  []*Change                 // the latest events, if they are deaths
	last  Moment                    // latest event
	cut   Moment                    // latest restart
}

// attemptKey identifies an attempt of a host: by the request while it waits, by the token when it
// holds the lock.
type attemptKey struct {
	lock    int
	request uint64
	token   layout.Ticket
	pid     int // without a request and a token
}

// history derives attempts and changes from the events, by their present times.
func history(j *journals) *Timeline {
	h := &historian{Timeline: &Timeline{leased: map[life][]Moment{}}, journals: j, lockAt: map[string]int{}}
	for i, host := range j.hosts {
		h.Hosts = append(h.Hosts, &Host{ID: host.id, Name: j.shown[i]})
	}
	byTime := func(a, b *record) int { return cmp.Compare(a.at, b.at) }
	h.From, h.Until = slices.MinFunc(j.records, byTime).at, slices.MaxFunc(j.records, byTime).at
	for _, k := range j.keepers {
		h.open, h.ofPID, h.over = map[attemptKey]*Attempt{}, map[attemptKey][]*Attempt{}, map[attemptKey]*Attempt{}
		h.last, h.cut, h.dead = Never, Never, nil
		for _, r := range j.of[k] {
			host := h.Hosts[h.keeperOf(r)]
			if !host.Journal {
				host.Journal, host.life = true, r.Incarnation
			}
			host.own = append(host.own, r.at)
			if r.Lock != "" {
				h.dead = nil
				h.lockEvent(r)
			} else {
				h.hostEvent(r)
			}
			h.last = r.at
			if by := int64(r.at - r.raw); abs(by) > abs(host.Added) {
				host.Added = by
			}
		}
		h.doubtOpen()
		h.dropCut()
	}
	h.mergeChanges()
	for _, host := range h.Hosts {
		slices.Sort(host.own)
	}
	for _, l := range h.Locks {
		slices.Sort(l.removed)
		slices.SortStableFunc(l.holds, func(a, b *Attempt) int {
			return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Entered, b.Entered))
		})
	}
	for _, all := range h.leased {
		slices.Sort(all)
	}
	h.guessEnds()
	for _, a := range h.Attempts {
		a.measure()
	}
	slices.SortStableFunc(h.Attempts, func(a, b *Attempt) int {
		return cmp.Or(cmp.Compare(a.begin(), b.begin()), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Token, b.Token))
	})
	if len(h.Attempts) > 0 {
		h.From = min(h.From, h.Attempts[0].begin()) // of a request whose event is missing
	}
	return h.Timeline
}

func (h *historian) lock(name string) int {
	i, ok := h.lockAt[name]
	if !ok {
		i = len(h.Locks)
		h.lockAt[name] = i
		h.Locks = append(h.Locks, &Lock{Name: text.PrintableLine(name), Permits: 1, raw: name})
	}
	return i
}

// lockKinds has the kinds of events of a lock, and for those that end an attempt, how.
var lockKinds = map[events.Kind]End{events.Exit: Released, events.Timeout: TimedOut, events.Cancel: Cancelled, events.Busy: WasBusy,
	events.Refused: Refused, events.Request: "", events.Waiting: "", events.Choosing: "", events.Ticket: "", events.Enter: "", events.ModeSet: "",
	events.Resumed: "", events.Orphan: "", events.Kill: "", events.Remains: "", events.Lost: "", events.Wanted: "", events.Removed: "", events.Gap: ""}

func (h *historian) lockEvent(r *record) {
	end, known := lockKinds[r.Kind]
	if !known {
		return // of a later bakeryd
	}
	lock, mark := h.lock(r.Lock), Mark{At: r.at, Kind: r.Kind, Host: h.keeperOf(r), Text: r.Reason}
	switch r.Kind {
	case events.Wanted, events.Removed, events.Gap:
		if r.ByHost != 0 {
			mark.Host = h.host(r.ByHost, r.ByHostName, 0)
		}
		h.Locks[lock].Marks = append(h.Locks[lock].Marks, mark)
		if r.Kind == events.Removed {
			h.remove(lock, r)
		}
		return
	case events.Kill, events.Remains, events.Orphan, events.Lost:
		if h.find(lock, r) != nil {
			break
		}
		if r.Token == 0 { // the hold is over, or unknown
			h.Locks[lock].Marks = append(h.Locks[lock].Marks, mark)
			return
		}
		if a := h.over[attemptKey{lock: lock, token: r.Token}]; a != nil { // processes that it has left running
			a.Marks = append(a.Marks, mark)
			return
		}
	}
	a := h.attempt(lock, r)
	waited := a.Sure // at least until then, unless it is held
	a.setClient(r)
	if len(r.Ahead) > 0 {
		a.Behind = h.behind(&r.Event)
	}
	switch r.Kind {
	case events.Choosing, events.Ticket, events.Enter, events.ModeSet:
		k := life{a.Host, a.Incarnation}
		h.leased[k] = append(h.leased[k], r.at)
	}
	switch r.Kind {
	case events.Request:
		a.Asked = cmp.Or(a.Asked, r.at)
	case events.Choosing:
		a.Choosing, a.Ticket = r.at, r.Ticket
	case events.Ticket:
		a.Numbered, a.Ticket = r.at, r.Ticket
	case events.Enter:
		h.enter(a, r)
	case events.ModeSet:
		h.knownHeld(a, r, waited)
		a.Modes = append(a.Modes, ModeChange{r.at, r.Mode == "shared"})
	case events.Resumed:
		if r.Token != 0 {
			h.knownHeld(a, r, waited)
		} else {
			h.rename(a, attemptKey{lock: lock, request: r.Seq}) // so its later events name it
		}
		a.Marks = append(a.Marks, mark)
	case events.Kill, events.Remains, events.Orphan, events.Lost:
		h.knownHeld(a, r, waited)
		a.Marks = append(a.Marks, mark)
		if r.Kind == events.Lost {
			a.Lost = r.at
		}
	case events.Exit:
		h.knownHeld(a, r, waited)
		h.over[attemptKey{lock: a.Lock, token: a.Token}] = a
	}
	if end != "" {
		a.End, a.Ended, a.Reason, a.exited, r.attempt = end, r.at, r.Reason, r, a
		delete(h.open, a.key)
	}
}

// setClient stores the fields that any event has about the client.
func (a *Attempt) setClient(r *record) {
	a.PID, a.Command = cmp.Or(r.PID, a.PID), cmp.Or(r.Command, a.Command)
	a.Incarnation = cmp.Or(r.Incarnation, a.Incarnation)
	if !a.held() {
		a.Shared = r.Mode == "shared"
	}
	if a.begin() == Never && r.WaitedMS > 0 {
		a.Asked = r.at - lasted(r.WaitedMS)
	}
	if a.held() {
		a.observeMode(r)
	}
	a.Sure, a.doubted, a.cut = r.at, false, Never
}

// observeMode detects that the mode of a hold has changed without an event: bakeryd was killed
// before it recorded the change, or is too old to record it. In between the hold counts as shared,
// because it violates only what both modes do.
func (a *Attempt) observeMode(r *record) {
	m := ModeChange{At: r.at, Shared: r.Mode == "shared"}
	if r.Mode == "" || r.Kind == events.ModeSet || a.sharedNow() == m.Shared {
		return
	}
	if m.Shared {
		m.At = a.Sure
	}
	a.Modes = append(a.Modes, m)
}

// sharedNow returns the latest known mode.
func (a *Attempt) sharedNow() bool {
	if n := len(a.Modes); n > 0 {
		return a.Modes[n-1].Shared
	}
	return a.Shared
}

func (h *historian) enter(a *Attempt, r *record) {
	if !a.held() {
		a.lock.holds = append(a.lock.holds, a)
	}
	if r.Kind == events.Enter || r.Kind == events.Resumed {
		a.permits = max(1, r.Permits)
	}
	a.lock.Permits = max(a.lock.Permits, r.Permits)
	a.Entered, a.Token, a.Shared, a.entered, a.Sure, r.attempt = r.at, r.Token, r.Mode == "shared", r, r.at, a
	if r.Token != 0 {
		h.rename(a, attemptKey{lock: a.Lock, token: r.Token})
	}
}

// knownHeld records that the lock is held. If the journal lacks the grant, the hold began before
// this event, and after the last one at which it waited.
func (h *historian) knownHeld(a *Attempt, r *record, waited Moment) {
	if a.held() {
		a.Sure = r.at
		return
	}
	h.enter(a, r)
	a.Entered, a.known = min(max(waited, r.at-lasted(r.HeldMS)), r.at), r.at // at most: after a resumption, this counts from the request
	if r.Kind == events.ModeSet {
		a.Shared = r.Mode != "shared"
	}
}

// behind describes the last holder or waiter ahead of an attempt.
func (h *historian) behind(e *events.Event) string {
	p := &e.Ahead[len(e.Ahead)-1]
	who := cmp.Or(p.HostName, fmt.Sprintf("host %d", p.Host))
	if i, ok := h.index[identity{p.Host, text.PrintableLine(p.HostName)}]; ok {
		who = h.shown[i]
	}
	if p.Host == e.Host {
		who = "another here"
	}
	parts := []string{who, p.Phase}
	if p.PID != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", p.PID))
	}
	parts = append(parts, p.Command)
	if n := max(e.AheadCount, len(e.Ahead)); n > 1 {
		parts = append(parts, fmt.Sprintf("(%d ahead in all)", n))
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return text.PrintableLine(strings.Join(parts, " "))
}
