package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// Attempt is the history of one request for a lock. Unknown moments are Never. Ended is always
// set; End shows whether it is a guess.
type Attempt struct {
	Host, Lock  int // indexes
	Incarnation uint64
	PID         int
	Command     string
	Shared      bool // as requested, and as granted
	Token       layout.Ticket
	Ticket      layout.Ticket

	Asked, Choosing, Numbered, Entered, Ended Moment

	End     End
	Reason  string
	Behind  string // the last one it waited for
	Modes   []ModeChange
	Marks   []Mark // lost, kill, orphan, resumed, wanted
	Lost    Moment // when the hold was lost
	Verdict Moment // when its host was declared dead

	sure            Moment // the hold lasted at least until then
	doubted         bool   // the journal may lack an end
	known           Moment // first event about the hold if its grant is missing; else Never
	waking          bool   // it ended just before the host noticed the end of its lease: the host may have been stalled
	vague           []span // times at which its mode is unknown
	permits         int
	key             attemptKey
	entered, exited *record
}

// ModeChange is a holder's change from exclusive to shared, or back.
type ModeChange struct {
	At     Moment
	Shared bool
}

// span is a range of time.
type span struct{ from, till Moment }

// End is how an attempt ended.
type End string

// The ends of attempts. The last four are guesses: the journals have no end.
const (
	Released  End = "released"
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

func (a *Attempt) begin() Moment {
	for _, at := range []Moment{a.Asked, a.Choosing, a.Numbered, a.Entered} {
		if at != Never {
			return at
		}
	}
	return a.Ended
}

// historian processes the events of one host after the other.
type historian struct {
	*Timeline
	hostAt map[int]int // index by id
	lockAt map[string]int
	open   map[attemptKey]int // of the present host
	ofPID  map[attemptKey]int // by process: its latest
	last   Moment             // of the present host: latest event
	ended  []int              // of the present host: the latest holds in the order of their ends
	over   map[attemptKey]int // of the present host: ended holds, by token
	end    Moment             // latest event of all
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
	h := &historian{Timeline: &Timeline{}, hostAt: map[int]int{}, lockAt: map[string]int{}, end: Never}
	ids := slices.Sorted(maps.Keys(j.seen))
	for i, id := range ids {
		h.hostAt[id] = i
		h.Hosts = append(h.Hosts, Host{ID: id, Name: cmp.Or(j.names[id], fmt.Sprintf("host %d", id)), Journal: j.keepers[id]})
	}
	for _, r := range j.records {
		h.end = max(h.end, r.at)
	}
	for _, id := range ids {
		h.open, h.ofPID, h.last = map[attemptKey]int{}, map[attemptKey]int{}, Never
		h.ended, h.over = nil, map[attemptKey]int{}
		for _, r := range j.of[id] {
			if r.Lock != "" {
				h.lockEvent(r)
			} else {
				h.hostEvent(r)
			}
			h.last = r.at
		}
		for _, i := range h.open {
			h.unsure(i)
		}
	}
	h.mergeChanges()
	h.guessEnds()
	slices.SortStableFunc(h.Attempts, byTime)
	return h.Timeline
}

func (h *historian) lock(name string) int {
	i, ok := h.lockAt[name]
	if !ok {
		i = len(h.Locks)
		h.lockAt[name] = i
		h.Locks = append(h.Locks, Lock{Name: name, Permits: 1})
	}
	return i
}

// find returns the attempt of an event, if it is open.
func (h *historian) find(r *record) *Attempt {
	lock := h.lock(r.Lock)
	if i, ok := h.open[attemptKey{lock: lock, token: r.Token}]; ok && r.Token != 0 && r.Kind != events.Enter {
		return &h.Attempts[i]
	}
	if i, ok := h.open[attemptKey{lock: lock, request: r.Request}]; ok && r.Request != 0 {
		return &h.Attempts[i]
	}
	if r.Request != 0 || r.PID == 0 {
		return nil
	}
	i, ok := h.ofPID[attemptKey{lock: lock, pid: r.PID}] // the request was before a restart, or the journal lacks the grant
	if !ok {
		return nil
	}
	a := &h.Attempts[i]
	if k, open := h.open[a.key]; !open || k != i || r.Token != 0 && a.held() {
		return nil
	}
	return a
}

// attempt returns the attempt of an event. It begins one if there is none.
func (h *historian) attempt(r *record) *Attempt {
	if a := h.find(r); a != nil {
		return a
	}
	lock := h.lock(r.Lock)
	key := attemptKey{lock: lock, request: r.Request}
	switch {
	case r.Request != 0:
	case r.Token != 0:
		key.token = r.Token
	default:
		key.pid = r.PID
	}
	h.Attempts = append(h.Attempts, Attempt{Host: h.hostAt[r.keeper], Lock: lock, Asked: Never, Choosing: Never, Numbered: Never,
		Entered: Never, Ended: Never, Lost: Never, Verdict: Never, sure: Never, known: Never, key: key})
	h.open[key] = len(h.Attempts) - 1
	h.ofPID[attemptKey{lock: lock, pid: r.PID}] = len(h.Attempts) - 1
	return &h.Attempts[len(h.Attempts)-1]
}

// ends has the kinds of events that end an attempt.
var ends = map[events.Kind]End{events.Exit: Released, events.Timeout: TimedOut, events.Cancel: Cancelled,
	events.Busy: WasBusy, events.Refused: Refused}

func (h *historian) lockEvent(r *record) {
	switch r.Kind {
	case events.Wanted, events.Removed, events.Gap:
		by := r.keeper
		if r.ByHost != 0 {
			by = r.ByHost
		}
		l := &h.Locks[h.lock(r.Lock)]
		l.Marks = append(l.Marks, Mark{At: r.at, Kind: r.Kind, Host: h.hostAt[by], Text: r.Reason})
		return
	case events.Request, events.Waiting, events.Choosing, events.Ticket, events.Enter, events.ModeSet, events.Resumed,
		events.Orphan, events.Kill, events.Lost:
	default:
		if _, ok := ends[r.Kind]; !ok {
			return // a kind of a later bakeryd
		}
	}
	if r.Token == 0 && (r.Kind == events.Kill || r.Kind == events.Orphan || r.Kind == events.Lost) && h.find(r) == nil {
		l := &h.Locks[h.lock(r.Lock)] // the hold is over, or unknown
		l.Marks = append(l.Marks, Mark{At: r.at, Kind: r.Kind, Host: h.hostAt[r.keeper], Text: r.Reason})
		return
	}
	if i, ok := h.over[attemptKey{lock: h.lock(r.Lock), token: r.Token}]; ok && r.Token != 0 && h.find(r) == nil &&
		(r.Kind == events.Kill || r.Kind == events.Orphan || r.Kind == events.Lost) {
		h.Attempts[i].mark(r, h.hostAt[r.keeper]) // processes that it has left running
		return
	}
	a := h.attempt(r)
	a.setClient(r)
	switch r.Kind {
	case events.Request:
		a.Asked = r.at
	case events.Choosing:
		a.Choosing, a.Ticket = r.at, r.Ticket
	case events.Ticket:
		a.Numbered, a.Ticket = r.at, r.Ticket
	case events.Enter:
		h.enter(a, r)
	case events.ModeSet:
		h.knownHeld(a, r)
		a.Modes = append(a.Modes, ModeChange{r.at, r.Mode == "shared"})
	case events.Resumed:
		if r.Token != 0 {
			h.knownHeld(a, r)
		}
		a.mark(r, h.hostAt[r.keeper])
	case events.Orphan, events.Kill, events.Lost:
		h.knownHeld(a, r)
		a.mark(r, h.hostAt[r.keeper])
		if r.Kind == events.Lost {
			a.Lost = r.at
		}
	}
	if end, ok := ends[r.Kind]; ok {
		if r.Kind == events.Exit {
			h.knownHeld(a, r)
			i := h.open[a.key]
			h.ended = append(h.ended[max(0, len(h.ended)-maxWaking):], i)
			h.over[attemptKey{lock: a.Lock, token: a.Token}] = i
		}
		a.End, a.Ended, a.Reason, a.exited = end, r.at, r.Reason, r
		delete(h.open, a.key)
	}
}

// setClient stores the fields that any event has about the client.
func (a *Attempt) setClient(r *record) {
	a.PID, a.Command = cmp.Or(r.PID, a.PID), cmp.Or(r.Command, a.Command)
	a.Incarnation, a.permits = cmp.Or(r.Incarnation, a.Incarnation), max(a.permits, r.Permits)
	if !a.held() {
		a.Shared = r.Mode == "shared"
	}
	if len(r.Ahead) > 0 {
		a.Behind = behind(r.Event)
	}
	if a.begin() == Never && r.WaitedMS > 0 {
		a.Asked = r.at - lasted(r.WaitedMS)
	}
	if a.held() {
		a.observeMode(r)
		a.sure, a.doubted = r.at, false
	}
}

// observeMode detects that the mode of a hold has changed without an event: bakeryd was killed
// before it recorded the change, or is too old to record it.
func (a *Attempt) observeMode(r *record) {
	shared, now := a.sharedNow(), r.Mode == "shared"
	if r.Mode == "" || r.Kind == events.ModeSet || shared == now {
		return
	}
	a.Modes = append(a.Modes, ModeChange{a.sure, now})
	a.vague = append(a.vague, span{a.sure, r.at})
}

// sharedNow returns the latest known mode.
func (a *Attempt) sharedNow() bool {
	if n := len(a.Modes); n > 0 {
		return a.Modes[n-1].Shared
	}
	return a.Shared
}

func (h *historian) enter(a *Attempt, r *record) {
	l := &h.Locks[a.Lock]
	l.Permits = max(l.Permits, r.Permits)
	a.Entered, a.Token, a.Shared, a.entered, a.sure = r.at, r.Token, r.Mode == "shared", r, r.at
	if r.Token == 0 {
		return
	}
	i := h.open[a.key]
	delete(h.open, a.key)
	a.key = attemptKey{lock: a.Lock, token: r.Token}
	h.open[a.key] = i
}

// knownHeld records that the lock is held. If the journal lacks the grant, the hold began before
// this event.
func (h *historian) knownHeld(a *Attempt, r *record) {
	if a.held() {
		a.sure = r.at
		return
	}
	h.enter(a, r)
	a.Entered, a.known = a.Entered-lasted(r.HeldMS), r.at // at most: after a resumption, this counts from the request
	if r.Kind == events.ModeSet {
		a.Shared = r.Mode != "shared"
	}
}

func (a *Attempt) mark(r *record, host int) {
	a.Marks = append(a.Marks, Mark{At: r.at, Kind: r.Kind, Host: host, Text: r.Reason})
}

// behind describes the last holder or waiter ahead of an attempt.
func behind(e *events.Event) string {
	p := &e.Ahead[len(e.Ahead)-1]
	who := cmp.Or(p.HostName, fmt.Sprintf("host %d", p.Host))
	if p.Host == e.Host {
		who = "another here"
	}
	text := []string{who}
	if p.Phase != "" {
		text = append(text, p.Phase)
	}
	if p.PID != 0 {
		text = append(text, fmt.Sprintf("pid %d", p.PID))
	}
	if p.Command != "" {
		text = append(text, p.Command)
	}
	if n := max(e.AheadCount, len(e.Ahead)); n > 1 {
		text = append(text, fmt.Sprintf("(%d ahead in all)", n))
	}
	return strings.Join(text, " ")
}
