package membership

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease"
)

func TestDelay_SlowClaim_NeedsNoExplanation(t *testing.T) {
	require.Equal(t, "a write of an earlier claim of the host id may still land", new(Member).delayOf(lease.Delayed{Reason: lease.ErrSlowClaim}).reason)
	require.Equal(t, "another one", new(Member).delayOf(lease.Delayed{Reason: errors.New("another one")}).reason)
}
