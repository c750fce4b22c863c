package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

// backups is how often each host takes one lock; db3 only before it dies.
var backups = map[int]int{1: 14, 2: 14, 3: 5}

// night runs three hosts, of which db3 dies, and returns the paths of their journals.
func night(t *testing.T, dir string) []string {
	c := browser.NewCluster(t, dir, 3, "--lease", "2s")
	c.Run(1, 0, "create", "reboot", "--permits", "2")
	var all, mortal sync.WaitGroup // commands of db3; its death does not wait for them
	loop := func(id, n int, args ...string) {
		group := &all
		if id == 3 {
			group = &mortal
		}
		group.Go(func() {
			for range n {
				_ = c.Ctl(id, args...).Run()
			}
		})
	}
	for id := 1; id <= 3; id++ {
		loop(id, backups[id], "lock", "nightly-backup", "--", "sleep", fmt.Sprintf("%.2f", 0.1+0.05*float64(id)))
		loop(id, 2, "lock", "reboot", "--", "sleep", "0.6")
	}
	for id := 1; id <= 2; id++ {
		loop(id, 8, "lock", "-s", "catalogue", "--", "sleep", "0.3")
	}
	loop(3, 2, "lock", "catalogue", "--", "sleep", "0.2")
	loop(2, 2, "lock", "-w", "0.1", "catalogue", "--", "sleep", "0.2")
	mortal.Wait()
	c.Run(3, 0, "lock", "-s", "settings", "--", "sh", "-c", "sleep 0.1; bakeryctl mode exclusive; sleep 0.2")

	wrapper := c.Begin(3, "lock", "deploy", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000")
	var pid int
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(c.Path("pid"))
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		pid = n
		return err == nil
	}, browser.Generous, 10*time.Millisecond)
	next := c.Begin(1, "lock", "deploy", "--", "sleep", "0.3")
	c.Noted(1, "ticket", "deploy")
	c.Run(2, 1, "lock", "-w", "0.5", "deploy", "--", "true")
	c.Kill(3) // with all its processes
	require.NoError(t, wrapper.Process.Kill())
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.NoError(t, next.Wait(), "db1 has it after the verdict")
	all.Wait()
	c.Start(3)
	kept := c.Begin(2, "lock", "deploy", "--", "sleep", "0.8")
	c.Noted(2, "enter", "deploy")
	c.Kill(2)
	c.Start(2)
	require.NoError(t, kept.Wait(), "the holder does not notice a restart")
	for id, cmd := range c.Up {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM), id)
	}
	var paths []string
	for id := 1; id <= 3; id++ {
		_ = c.Up[id].Wait()
		delete(c.Up, id)
		found, err := filepath.Glob(c.Path(fmt.Sprint("h", id), "state", "*.events"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		paths = append(paths, found...)
	}
	return paths
}

// event is an event of a journal, as JSON.
type event map[string]any

func (e event) is(kind, lock string) bool {
	return e["kind"] == kind && (lock == "" || e["lock"] == lock)
}

func (e event) at(t *testing.T) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, e["at"].(string))
	require.NoError(t, err)
	return at
}

func readEvents(t *testing.T, path string) (all []event) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		var e event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		all = append(all, e)
	}
	return all
}

func writeEvents(t *testing.T, path string, all []event) string {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, e := range all {
		require.NoError(t, enc.Encode(e))
	}
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}
