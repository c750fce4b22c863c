package handover

import (
	"math"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
)

// TestFile_AnyCgroupOfAUser_KeepsTheState: no name of a cgroup makes the handover file
// void.
func TestFile_AnyCgroupOfAUser_KeepsTheState(t *testing.T) {
	peer := cgroup.Wrapper{ID: process.ID{PID: math.MaxInt32, Started: math.MaxUint64}, Namespace: math.MaxUint32, Session: "ffffffff"}
	for name, want := range map[string]bool{
		"/user.slice":                         true,
		"/" + strings.Repeat("x", 257):        true,
		"/" + strings.Repeat("x", 258):        false,
		"/" + strings.Repeat("\x01", 42):      true,
		"/" + strings.Repeat("\x01", 43):      false,
		"/" + strings.Repeat("&", 250):        false,
		"/" + strings.Repeat("\u2028", 80):    false,
		"/not text \xff":                      false,
		"relative":                            false,
		"/sys/fs/cgroup/../cgroup/user.slice": false,
	} {
		dir := name + "/" + peer.Name()
		err := CheckCgroup(dir)
		require.Equal(t, want, err == nil, "%q: %v", path.Base(name), err)
		if err != nil {
			continue
		}
		r := Session{ID: strings.Repeat("f", 32), Nth: math.MaxUint64, State: Granted, Name: strings.Repeat("&", layout.MaxLockName),
			Lock: layout.MaxLocks, Creation: math.MaxUint64, Permits: layout.MaxHosts, LockPermits: layout.MaxHosts, PID: math.MaxInt32,
			Command: strings.Repeat("<", layout.MaxCommand), Peer: peer.PID, PeerStarted: peer.Started, PeerUID: math.MaxUint32,
			Token: layout.MakeTicket(1<<40, fileHost), Since: time.Now(), Witness: true,
			Cgroup: dir, Unconfirmed: true}
		j := newFile(t)
		require.NoError(t, put(j, r), name)
		_, sessions := read(t, j)
		require.Equal(t, dir, sessions[0].Cgroup)
	}
}
