package ondevice

import (
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// The hint must not recommend format for a lockspace of a newer version.
func TestHint_OtherVersion_DoesNotRecommendFormat(t *testing.T) {
	err := fmt.Errorf("%w on /dev/sdb: superblock at byte 0: %w", lockspace.ErrNoLockspace, layout.ErrVersion)
	require.Contains(t, Failure(err).Hint, "the version that formatted it")
}

// TestHint_WrongDisks_DoesNotRecommendFormat: one blank disk among the members is not all there is.
func TestHint_WrongDisks_DoesNotRecommendFormat(t *testing.T) {
	err := fmt.Errorf("%w: give others; %w", lockspace.ErrDisks, lockspace.ErrNoLockspace)
	require.Empty(t, Failure(err).Hint)
	permission := "as root"
	if os.Geteuid() == 0 {
		permission = "refuses root" // to run it as root would be no remedy
	}
	require.Contains(t, Failure(fmt.Errorf("%w; %w", err, fs.ErrPermission)).Hint, permission)
}
