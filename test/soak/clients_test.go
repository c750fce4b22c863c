package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// bakeryctl runs lock itself only if that is its first argument. Otherwise it executes bakeryctl-full,
// and the faults of wrappers and commands find no wrapper.
func TestHost_LockArgs_BeginWithTheCommand(t *testing.T) {
	h := &host{s: &soak{bakeryctl: "/bin/bakeryctl"}}
	require.Equal(t, []string{"/bin/bakeryctl", "lock", "--socket"}, h.lockArgs("-n", "x")[:3])
}
