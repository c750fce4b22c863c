package advice

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// TestFind_FirstThatMatches: an error that wraps others gets the hint for the outermost cause.
func TestFind_FirstThatMatches(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
	}{
		{lockspace.ErrMajority, "check the disks that fail"},
		{fmt.Errorf("%w; a: %w within 2s", lockspace.ErrMajority, lockspace.ErrNoAnswer), "check the disks that do not answer"},
		{fmt.Errorf("%w; a: %w within 2s", lockspace.ErrSilent, lockspace.ErrNoAnswer), "check the disks that do not answer"},
		{fmt.Errorf("%w: %w", lockspace.ErrNoLockspace, layout.ErrBlank), "to create a lockspace, run bakeryctl format"},
		{fmt.Errorf("%w: %w", lockspace.ErrNoLockspace, layout.ErrMagic), "bakeryctl format would destroy that"},
		{fmt.Errorf("lockspace on x: %w: it needs more", lockspace.ErrDeviceSize), "restore the size of the device"},
		{fmt.Errorf("create x: %w: %w", blockdev.ErrDirectory, syscall.EACCES), "give a path in a directory that this user may write"},
	} {
		require.Contains(t, Find(c.err, Device), c.hint)
	}
	require.Empty(t, Find(lockspace.ErrDisks, Device))
	require.Empty(t, Find(os.ErrClosed, Device))
}

// TestDevice_Refused_NeverRootToRoot: a command of root is not told to run as root.
func TestDevice_Refused_NeverRootToRoot(t *testing.T) {
	for _, no := range []error{syscall.EPERM, syscall.EACCES} {
		hint := Find(fmt.Errorf("open /dev/x: %w", no), Device)
		require.NotEmpty(t, hint)
		if os.Geteuid() == 0 {
			require.NotContains(t, hint, "as root")
		}
	}
	require.NotEqual(t, Find(syscall.EPERM, Device), Find(syscall.EACCES, Device))
}
