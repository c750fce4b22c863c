//go:build vm

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// kind is a kind of machine. The first test that needs a kind boots its template and takes a
// snapshot, from which all machines of that kind continue. Resets and reboots are real boots: they
// do not use the snapshot.
type kind struct {
	name    string
	words   []string                                    // for the kernel's command line
	devices func(t *testing.T, machine string) []string // arguments of qemu

	once sync.Once
}

// bare is the kind of machine with everything in its initramfs.
var bare = &kind{name: "bare", devices: func(*testing.T, string) []string { return nil }}

// snapshot returns the file with the snapshot.
func (k *kind) snapshot(t *testing.T) (file string) {
	t.Helper()
	dir := filepath.Join(base, "snapshots")
	file = filepath.Join(dir, k.name)
	k.once.Do(func() {
		t.Run("snapshot", func(t *testing.T) {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			m := k.start(t, Template)
			m.bootedWithin(bootPatience, 1)
			m.monitor.do(t, "migrate-set-capabilities", `"capabilities": [{"capability": "events", "state": true}]`)
			m.monitor.do(t, "migrate-set-parameters", fmt.Sprintf(`"max-bandwidth": %d`, 1<<40))
			m.monitor.do(t, "migrate", fmt.Sprintf(`"uri": %q`, "exec:cat >"+file+".new"))
			eventually(t, "the snapshot is written", func() bool {
				return slices.Contains(m.monitor.seen(), "MIGRATION completed")
			})
			require.NoError(t, os.Rename(file+".new", file))
		})
	})
	require.FileExists(t, file, "the snapshot failed, see the first test")
	return file
}
