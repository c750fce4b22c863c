package lockspace

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/singleflight"
)

// TestSurvey_PathHangs_IsReadOnce: each read of it occupies a thread until it returns.
func TestSurvey_PathHangs_IsReadOnce(t *testing.T) {
	var reads atomic.Int32
	never, group := make(chan struct{}), new(singleflight.Group)
	defer close(never)
	for range 5 {
		survey(group, []string{"hung"}, 10*time.Millisecond, func(string) finding { reads.Add(1); <-never; return finding{} })
	}
	require.EqualValues(t, 1, reads.Load())
}

// TestChoose_NoDiskAnswers_IsSaid: the disks are not wrong, as far as is known.
func TestChoose_NoDiskAnswers_IsSaid(t *testing.T) {
	silent := func(path string) finding {
		return finding{path: path, err: fmt.Errorf("%s: %w within 2s", path, ErrNoAnswer)}
	}
	_, err := choose([]finding{silent("a"), silent("b"), silent("c")})
	require.EqualError(t, err, "no member disk answers; a: no answer within 2s; b: no answer within 2s; c: no answer within 2s")
	require.ErrorIs(t, err, ErrDisks)
	require.ErrorIs(t, err, ErrSilent)
	require.NotErrorIs(t, err, ErrMajority)
	_, err = choose([]finding{silent("a")})
	require.ErrorIs(t, err, ErrSilent, "one disk of one")
	_, err = choose([]finding{silent("a"), silent("b"), {path: "c", err: errors.New("open c: no such file")}})
	require.NotErrorIs(t, err, ErrSilent)
	require.ErrorIs(t, err, ErrNoAnswer)
}
