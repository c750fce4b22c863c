package ondevice

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// TestVersionHint: nobody is told to format what a newer bakeryd made.
func TestVersionHint(t *testing.T) {
	err := fmt.Errorf("%w on /dev/sdb: superblock at byte 0: %w", lockspace.ErrNoLockspace, layout.ErrVersion)
	require.Contains(t, Hint(err), "another version")
}
