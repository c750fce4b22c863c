package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/locks"
)

// used returns the lock of a host that has used it before, so that its driver rests.
func used(t *testing.T, d *Host) {
	t.Helper()
	require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
}
