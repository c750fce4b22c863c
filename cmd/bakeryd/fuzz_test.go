package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/server"
)

// FuzzOptions: any command line and environment gives valid options or an error.
func FuzzOptions(f *testing.F) { // 15000x
	f.Add("--device\x00x\x00--host-id\x003", "BAKERYD_HANDOFF", "2")
	f.Add("--device=x\x00--fence\x00exec\x00--fence-exec\x00true", "BAKERYD_HOST_ID", "auto")
	f.Add("-h", "", "")
	f.Add("--device\x00x\x00--fence-device\x00a\x00--fence-device\x00b", "BAKERYD_FENCE_DEVICE", "c,d\x00")
	f.Add("--device\x00x\x00--listen\x00[::1]:9415", "BAKERYD_LISTEN", ":80")
	f.Add("--host-id\x00-1", "BAKERYD_DEVICE", "/dev/x")
	f.Fuzz(func(t *testing.T, args, name, value string) {
		o, err := parse(strings.Split(args, "\x00"), []string{name + "=" + value})
		if err != nil {
			return
		}
		if o.help != "" || o.version {
			return
		}
		require.NotEmpty(t, o.daemon.Devices)
		if o.listen != "" {
			require.NoError(t, server.CheckLoopback(o.listen))
		}
		require.GreaterOrEqual(t, o.daemon.HostID, 0)
		require.GreaterOrEqual(t, o.daemon.Handoff, 1)
		require.Contains(t, []string{"text", "json", "journal"}, o.logFormat)
		require.Contains(t, []string{"pr", "exec"}, o.daemon.Fence.Agent)
	})
}
