package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// world is a number of hosts that write journals, each by its own clock.
type world struct {
	t     *testing.T
	hosts map[int]*keeper
}

// keeper is one host: true times in milliseconds become those of its clock.
type keeper struct {
	id      int
	boot    string
	offset  time.Duration // of its clock
	uptime  time.Duration // at the beginning of the world
	journal []events.Event
	seq     uint64
}

var dawn = time.Date(2026, 3, 1, 3, 12, 0, 0, time.UTC)

func newWorld(t *testing.T) *world { return &world{t, map[int]*keeper{}} }

// host returns a host with its own machine and clock.
func (w *world) host(id int) *keeper {
	h, ok := w.hosts[id]
	if !ok {
		h = &keeper{id: id, boot: string(rune('a' + id)), uptime: time.Duration(id) * time.Hour, seq: uint64(id) << 40}
		w.hosts[id] = h
		h.note(-1000, events.Event{Kind: events.Joined, Boot: h.boot})
	}
	return h
}

// onOneMachine gives hosts one clock.
func (w *world) onOneMachine(ids ...int) {
	for _, id := range ids {
		w.hosts[id] = &keeper{id: id, boot: "same", uptime: time.Hour, seq: uint64(id) << 40}
		w.hosts[id].note(-1000, events.Event{Kind: events.Joined, Boot: "same"})
	}
}

func (h *keeper) note(ms float64, e events.Event) {
	true_ := time.Duration(ms * float64(time.Millisecond))
	h.seq++
	e.Seq, e.At, e.UptimeMS = h.seq, dawn.Add(true_+h.offset), (h.uptime + true_).Milliseconds()
	if e.Host == 0 {
		e.Host, e.HostName, e.Incarnation = h.id, "db"+string(rune('0'+h.id)), text.Hex(1000+h.id)
	}
	h.journal = append(h.journal, e)
}

func (h *keeper) enter(ms float64, number uint64, more ...func(*events.Event)) layout.Ticket {
	token := layout.MakeTicket(number, h.id)
	e := events.Event{Kind: events.Enter, Lock: "x", Mode: "exclusive", Token: token, Request: number, PID: h.id * 11}
	for _, f := range more {
		f(&e)
	}
	h.note(ms, e)
	return token
}

func (h *keeper) exit(ms float64, number uint64, more ...func(*events.Event)) {
	e := events.Event{Kind: events.Exit, Lock: "x", Mode: "exclusive", Token: layout.MakeTicket(number, h.id), Request: number, PID: h.id * 11}
	for _, f := range more {
		f(&e)
	}
	h.note(ms, e)
}

// hold records a hold that begins and ends.
func (h *keeper) hold(from, till float64, number uint64, more ...func(*events.Event)) {
	h.enter(from, number, more...)
	h.exit(till, number, more...)
}

func shared(e *events.Event)   { e.Mode = "shared" }
func permits2(e *events.Event) { e.Permits = 2 }

func (w *world) sources() (all []Source) {
	for id := range 10 {
		if h := w.hosts[id]; h != nil {
			all = append(all, Source{Name: "db" + string(rune('0'+id)), Events: h.journal})
		}
	}
	return all
}

func (w *world) build(o Options) *Timeline {
	w.t.Helper()
	tl, err := Build(w.sources(), o)
	require.NoError(w.t, err)
	return tl
}

// foundKinds returns the kinds of the findings; proven ones end in an exclamation mark.
func (t *Timeline) foundKinds() (kinds []string) {
	for _, f := range t.Findings {
		kind := string(f.Kind)
		if f.Proven() {
			kind += "!"
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

func (t *Timeline) holds() (all []*Attempt) {
	for _, a := range t.Attempts {
		if a.held() {
			all = append(all, a)
		}
	}
	return all
}

// ms returns a moment in the milliseconds of the world.
func ms(m Moment) float64 { return float64(int64(m)-dawn.UnixMicro()) / 1000 }
