package stress

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// The lock that a run has created is removed once, after the last worker. If that fails the caller hears of it.
func TestLast_AllLeft_RemovesTheLock(t *testing.T) {
	busy := errors.New("busy")
	for _, test := range []struct {
		created          bool
		err              error
		removed, remains int
	}{
		{true, nil, 1, 0},
		{true, busy, 1, 1},
		{true, api.ErrNoLock, 1, 0},
		{false, nil, 0, 0},
	} {
		removed, remains := 0, 0
		l := &last{left: 2, run: &run{cfg: Config{Remains: func(err error) {
			require.ErrorIs(t, err, busy)
			remains++
		}}}}
		remove := func(context.Context) error {
			removed++
			return test.err
		}
		l.leaves(test.created, remove)
		require.Zero(t, removed)
		l.leaves(test.created, remove)
		require.Equal(t, []int{test.removed, test.remains}, []int{removed, remains}, "%+v", test)
	}
}
