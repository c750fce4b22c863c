package timeline

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// BenchmarkBuild measures journals of 200,000 events. None may take much longer than the others, by
// the number of open requests or of restarts.
func BenchmarkBuild(b *testing.B) {
	const size = 200_000
	for name, write := range map[string]func(h *keeper, i int){
		"50 locks": func(h *keeper, i int) {
			n := i / 4
			lock := func(e *events.Event) { e.Lock, e.PID, e.Request = fmt.Sprintf("lock%d", n%50), 1000+n%500, uint64(n+1) }
			switch at := float64(i); i % 4 {
			case 0:
				h.request(at, "", uint64(n+1), lock)
			case 1:
				h.note(at, events.Event{Kind: events.Ticket, Lock: fmt.Sprintf("lock%d", n%50), PID: 1000 + n%500, Request: uint64(n + 1), Ticket: layout.MakeTicket(uint64(n+1), h.id)})
			case 2:
				h.enter(at, uint64(n+1), lock)
			case 3:
				h.exit(at, uint64(n+1), lock)
			}
		},
		"open requests of one process": func(h *keeper, i int) { h.request(float64(i), "x", uint64(i+1), ofPID(9)) },
		"restarts with a request": func(h *keeper, i int) {
			if i%2 == 1 {
				h.note(float64(i), events.Event{Kind: events.Joined, Boot: h.boot})
				return
			}
			h.request(float64(i), "x", uint64(i+1), ofPID(9), func(e *events.Event) { e.Command = fmt.Sprint(i) })
		},
		"restarts with open requests": func(h *keeper, i int) {
			switch n := uint64(i + 1); {
			case i < maxOfProcess || i%3 == 0:
				h.request(float64(i), "x", n, ofPID(9))
			case i%3 == 1:
				h.restart(float64(i))
			default:
				h.note(float64(i), events.Event{Kind: events.Timeout, Lock: "x", Request: n - 2, PID: 9, Command: "job"})
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			h := newWorld(nil).host(1)
			for i := range size {
				write(h, i)
			}
			for b.Loop() {
				_, err := Build([]Source{{Name: "db1", Events: h.journal}}, Options{})
				require.NoError(b, err)
			}
		})
	}
}
