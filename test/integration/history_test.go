//go:build integration

package integration

import (
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// history is what clients asked of one lock and got, on the clock of the test.
type history struct {
	began time.Time
	mu    sync.Mutex // guards ops
	ops   []porcupine.Operation
}

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// call is one request: for the lock in a mode, or to let it go.
type call struct {
	release bool
	mode    layout.Mode
	token   layout.Ticket
}

// add records a call from asking to answer.
func (h *history) add(client int, c call, asked, answered int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Output: c.token, Call: asked, Return: answered})
}

// inside is the state of the lock.
type inside struct {
	writer  bool
	readers int
	last    layout.Ticket // the greatest of an exclusive grant
}

// lockModel is what a lock does: one writer or any number of readers, and
// tokens of writers that only grow. That a client is out from when it asked to
// let go, and the lock free only later, makes no difference to it.
var lockModel = porcupine.Model{
	Init: func() any { return inside{} },
	Step: func(state, input, output any) (bool, any) {
		s, c := state.(inside), input.(call)
		switch {
		case c.release && c.mode == layout.Shared:
			s.readers--
			return s.readers >= 0, s
		case c.release:
			was := s.writer
			s.writer = false
			return was, s
		case c.mode == layout.Shared:
			s.readers++
			return !s.writer, s
		}
		ok := !s.writer && s.readers == 0 && c.token > s.last
		s.writer, s.last = true, c.token
		return ok, s
	},
}

// check fails the test unless a lock can have given these answers.
func (h *history) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(lockModel, h.ops, 2*time.Minute)
	t.Logf("history of %d calls checked in %v", len(h.ops), time.Since(began).Round(time.Millisecond))
	require.Equal(t, porcupine.Ok, result, "the history is not one of a lock")
}
