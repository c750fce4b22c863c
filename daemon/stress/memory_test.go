package stress

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMemory orders the sections only by the lock. The race detector, if enabled, judges whether
// that suffices.
func TestMemory(t *testing.T) {
	for _, maxTicket := range []uint64{0, LeastMaxTicket(8), 300} {
		r, err := Run(t.Context(), Config{Workers: 8, Iterations: 2000, blind: true}, Memory(maxTicket))
		require.NoError(t, err)
		require.True(t, r.Passed(), "%+v", r)
		require.EqualValues(t, 16000, r.Observed)
		if maxTicket == 0 {
			require.GreaterOrEqual(t, r.MaxTicket, uint64(16000), "every section draws a number of its own")
			require.Zero(t, r.Drains)
			continue
		}
		require.Less(t, r.MaxTicket, maxTicket)
		require.GreaterOrEqual(t, r.Drains, 16000/maxTicket, "no more sections in an era than there are numbers")
	}
}

func TestMemory_OneWorker_DrainsAfterEachSection(t *testing.T) {
	r, err := Run(t.Context(), Config{Workers: 1, Iterations: 100}, Memory(LeastMaxTicket(1)))
	require.NoError(t, err)
	require.True(t, r.Passed(), "%+v", r)
	require.EqualValues(t, 1, r.MaxTicket)
	require.EqualValues(t, 99, r.Drains, "the last section comes after the last of them")
}

func TestInvalid(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		b    Backend
		want string
	}{
		{"no worker", Config{Workers: 0, Iterations: 1}, Memory(0), "0 workers, want 1 to 2000"},
		{"too many workers", Config{Workers: 2001, Iterations: 1}, Memory(0), "2001 workers, want 1 to 2000"},
		{"no iteration", Config{Workers: 1, Iterations: 0}, Memory(0), "0 iterations, want 1 to"},
		{"too small a bound", Config{Workers: 3, Iterations: 1}, Memory(6), "3 workers cannot keep their tickets below 6, want at least 7"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, err := Run(t.Context(), test.cfg, test.b)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, test.want)
			require.Nil(t, r)
		})
	}
}

// until ends a context at the first line that contains a text.
type until struct {
	text   string
	cancel context.CancelCauseFunc
	lines  atomic.Int64
}

var errEnough = errors.New("enough")

func (u *until) Write(p []byte) (int, error) {
	u.lines.Add(1)
	if strings.Contains(string(p), u.text) {
		u.cancel(errEnough)
	}
	return len(p), nil
}

// TestInterrupted ends a run while its workers wait: in the queue, at the gate, and inside.
func TestInterrupted(t *testing.T) {
	for _, text := range []string{") waits for worker", "waits at the gate", "enters"} {
		t.Run(text, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			u := &until{text: text, cancel: cancel}
			r, err := Run(ctx, Config{Workers: 4, Iterations: 1 << 40, Hold: 100 * time.Microsecond, Debug: u}, Memory(30))
			require.ErrorIs(t, err, errEnough)
			require.False(t, r.Passed())
			require.Less(t, r.Observed, r.Expected)
			require.Zero(t, r.Overlaps)
		})
	}
}

// TestDebug follows the debug output of a run.
func TestDebug(t *testing.T) {
	var told strings.Builder
	r, err := Run(t.Context(), Config{Workers: 3, Iterations: 20, Hold: time.Millisecond, Debug: &told}, Memory(20))
	require.NoError(t, err)
	require.True(t, r.Passed(), "%+v", r)
	require.Equal(t, 60, strings.Count(told.String(), "enters\n"))
	require.Equal(t, 60, strings.Count(told.String(), "leaves\n"))
	for _, line := range []string{
		`worker \d is choosing, with \d+ reserved`,
		`worker \d takes ticket \d+`,
		`worker \d \(ticket \d+\) waits for worker \d \(ticket \d+, held\)`,
		`worker \d finds the gate closed and puts its number back to zero`,
		`worker \d goes home`,
	} {
		require.Regexp(t, line, told.String())
	}
}
