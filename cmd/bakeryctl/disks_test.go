package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/calltest"
)

// TestDisks_NotJoined_PrintsThemAndTheError: they may be why, and the lockspace is not on one disk.
func TestDisks_NotJoined_PrintsThemAndTheError(t *testing.T) {
	t.Parallel()
	s := calltest.Serve(t, 200, `{"report": {"lockspace": {"device": "/dev/a, /dev/b, /dev/c"}, "this_host": {"id": 1, "state": "joining", "lease_left_ms": -42300},
		"disks": [{"position": 1, "device": "/dev/a", "state": "up"}, {"position": 2, "device": "/dev/b", "state": "down"}, {"position": 3, "device": "/dev/c", "state": "hangs"}]},
		"error": {"code": "unavailable", "message": "not joined to the lockspace: no majority"}}`)
	for _, args := range [][]string{{"disks"}, {"disks", "--json"}} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 69, run(t.Context(), append([]string{"--socket", s.Socket}, args...), &app{stdout: &stdout, stderr: &stderr}))
		require.Contains(t, stderr.String(), "not joined to the lockspace: no majority; the output is what bakeryd knew when its lease was lost, 42 s ago\n")
		for _, disk := range []string{"/dev/a", "/dev/b", "/dev/c", "hangs"} {
			require.Contains(t, stdout.String(), disk)
		}
		require.NotContains(t, stdout.String(), "on one disk")
	}
}
