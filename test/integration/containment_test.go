//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/cgroup"
)

// TestContainment_CgroupThatTakesNoProcess_IsReportedAsWeak runs bakeryctl in a threaded cgroup: cgroups can be made below
// it, but processes cannot be moved there.
func TestContainment_CgroupThatTakesNoProcess_IsReportedAsWeak(t *testing.T) {
	t.Parallel()
	parents, err := cgroup.Parents(os.Getpid())
	require.NoError(t, err)
	outer := filepath.Join(parents[0], filepath.Base(t.TempDir())+strconv.Itoa(os.Getpid()))
	threaded := filepath.Join(outer, "threaded")
	require.NoError(t, os.MkdirAll(threaded, 0o755))
	t.Cleanup(func() {
		(&cgroup.Group{Dir: outer}).Remove()
		require.NoDirExists(t, outer)
	})
	require.NoError(t, os.WriteFile(filepath.Join(threaded, "cgroup.type"), []byte("threaded"), 0))
	h := briefSpace(t).host(1)
	held := launch(t, h.dir, "sh", "-c", `echo $$ >"$0"/cgroup.procs; exec "$@"`, threaded,
		h.programs.bakeryctl, "--socket", h.socket, "lock", "-v", "x", "--", "sh", "-c", `echo $BAKERY_TOKEN; read line`)
	held.entered()
	holders := h.report("x").Holders
	require.Len(t, holders, 1)
	require.Contains(t, holders[0].Containment, "weak: move process")
	require.Contains(t, held.said(), "weak containment: ")
	groups, err := filepath.Glob(filepath.Join(threaded, "bakeryctl-*"))
	require.NoError(t, err)
	require.Empty(t, groups)
	held.letGo()
}
