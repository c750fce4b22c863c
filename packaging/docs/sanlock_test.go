package docs

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// TestSanlock_Limits_AreThoseOfTheCode: the guide has the times of a lease of 30 s, and the length
// of a value block.
func TestSanlock_Limits_AreThoseOfTheCode(t *testing.T) {
	x := timing.Times{Lease: 30 * time.Second}
	warn := x.Lease - x.Grace()
	seconds := func(d time.Duration) string { return fmt.Sprintf("%v s", d.Seconds()) }
	guide := read(t, "sanlock.md")
	for _, row := range []string{
		"| " + seconds(warn) + " | its killpath runs",
		"| " + seconds(warn+x.Grace()/2) + " | a client with a killpath gets SIGTERM",
		"| " + seconds(x.Lease) + " | SIGKILL",
		"| " + seconds(x.Dead()) + ", with a watchdog " + seconds(x.Dead()+x.Watchdog()) + " | other hosts",
		"| " + seconds(x.Lease+x.Watchdog()) + " | the watchdog resets the host",
		fmt.Sprintf("| a sector | %d bytes", layout.MaxValue-8), // a nonce comes first
	} {
		require.Contains(t, guide, row)
	}
}

// TestSanlock_DropIn_FitsTheServer: systemd keeps as many connections as bakeryd serves, and makes
// the directory of the socket.
func TestSanlock_DropIn_FitsTheServer(t *testing.T) {
	dropIn := read(t, "../systemd/sanlock.conf")
	limit := regexp.MustCompile(`const maxConns = (\d+)\n`).FindStringSubmatch(read(t, "../../daemon/sanlock/server.go"))
	require.NotNil(t, limit)
	require.Contains(t, dropIn, "\nFileDescriptorStoreMax="+limit[1]+"\n")
	socket := regexp.MustCompile(`(?m)^Environment=BAKERYD_SANLOCK_SOCKET=/run/(\w+)/sanlock\.sock$`).FindStringSubmatch(dropIn)
	require.NotNil(t, socket)
	require.Contains(t, dropIn, "\nRuntimeDirectory="+socket[1]+"\n")
}
