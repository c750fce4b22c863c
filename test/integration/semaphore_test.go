//go:build integration

package integration

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSemaphoreOfDeadHost: a permit that a dead host had is another's in time; until then the others share what is left.
func TestSemaphoreOfDeadHost(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	hosts := s.hosts(3)
	require.Zero(t, hosts[0].ctl("create", "reboot", "--permits", "2").code)
	dies := hosts[2].take("reboot")
	dies.entered()
	stays := hosts[0].take("reboot")
	stays.entered()
	next := hosts[1].take("reboot")
	hosts[0].sees(hosts[1], "reboot")
	next.outside()
	dies.signal(syscall.SIGKILL)
	hosts[2].all(syscall.SIGKILL)
	next.entered()
	next.letGo()
	stays.letGo()
}
