//go:build integration

package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/history"
)

// calls records the requests for one lock and their results, on the test's clock.
type calls struct {
	*history.Recorder
	began time.Time
}

func newCalls() calls { return calls{history.New(1), time.Now()} }

func (c calls) now() time.Duration { return time.Since(c.began) }

// took records a hold that was asked for at a time, and is held now. out records its end; call it
// before the unlock.
func (c calls) took(hold *client.Hold, asked time.Duration) (out func()) {
	call := history.Call{Kind: history.Acquire, Mode: layout.Mode(hold.Mode()), Token: layout.Ticket(hold.Token()), Asked: asked, Answered: c.now()}
	c.Add(call)
	return func() {
		call.Kind, call.Asked = history.Release, c.now()
		call.Answered = call.Asked
		c.Add(call)
	}
}

// check fails the test if no correct lock could have given these answers.
func (c calls) check(t *testing.T) {
	t.Helper()
	h, began := c.Rest(), time.Now()
	requireHistory(t, h)
	t.Logf("history of %d calls checked in %v", len(h.Calls), time.Since(began).Round(time.Millisecond))
}

func requireHistory(t *testing.T, h *history.History) {
	t.Helper()
	err := h.Check(2 * time.Minute)
	if err != nil && !errors.Is(err, history.ErrUndecided) {
		calls := h.Impossible()
		t.Logf("the last calls of the violation: %v", calls[max(0, len(calls)-10):])
	}
	require.NoError(t, err)
}
