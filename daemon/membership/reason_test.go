package membership

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease"
)

func TestReasonOf_SlowClaim_NeedsNoExplanation(t *testing.T) {
	require.Equal(t, "a write of an earlier claim of the host id may still land", reasonOf(&lease.Delayed{Reason: lease.ErrSlowClaim}))
	require.Equal(t, "another one", reasonOf(&lease.Delayed{Reason: errors.New("another one")}))
}
