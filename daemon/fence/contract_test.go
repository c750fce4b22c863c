package fence_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/daemon/fence/fencetest"
	"github.com/stretchr/testify/require"
)

func TestContract(t *testing.T) {
	for _, kind := range fence.Kinds {
		t.Run("pr/"+kind, func(t *testing.T) {
			fencetest.Contract(t, synctest.Test, func(t *testing.T) fencetest.World { return prWorld(t, kind) })
		})
	}
	plain := func(t *testing.T, test func(*testing.T)) { test(t) }
	t.Run("exec", func(t *testing.T) { fencetest.Contract(t, plain, execWorld) })
	t.Run("fake", func(t *testing.T) { fencetest.Contract(t, synctest.Test, fakeWorld) })
}

func prWorld(t *testing.T, kind string) fencetest.World {
	w := fence.NewTesting(t, kind)
	return fencetest.World{
		Agents: w.Agents, CanWrite: w.CanWrite, Break: w.Break, Hang: w.Hang,
		Targets: [2]fence.Target{{Host: 1, Name: "db1", Key: w.Keys[0]}, {Host: 2, Name: "db2", Key: w.Keys[1]}},
		Bad:     fence.Target{Host: 3, Name: "db3"},
	}
}

// execWorld returns a disk that is a directory, and a fence command that creates a file there for
// each host.
func execWorld(t *testing.T) fencetest.World {
	dir := t.TempDir()
	put := func(name string) func() {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return func() { require.NoError(t, os.Remove(path)) }
	}
	t.Setenv("DISK", dir)
	w := fencetest.World{
		Targets: [2]fence.Target{{Host: 1, Name: "db1"}, {Host: 2, Name: "db2"}},
		Bad:     fence.Target{Host: 3, Name: "db3; rm -rf /"},
	}
	for i := range w.Agents {
		a, err := fence.New(fence.Config{Agent: "exec",
			Command: `test ! -e $DISK/hang || sleep 1000; test ! -e $DISK/broken && touch $DISK/off.$BAKERY_FENCE_HOST`})
		require.NoError(t, err)
		w.Agents[i] = a
	}
	w.CanWrite = func(host int) bool {
		_, err := os.Stat(filepath.Join(dir, "off."+w.Targets[host].Name))
		return err != nil
	}
	w.Break = func() func() { return put("broken") }
	w.Hang = func() func() { return put("hang") }
	return w
}

func fakeWorld(*testing.T) fencetest.World {
	f := &fencetest.Fabric{}
	return fencetest.World{
		Agents:   [2]fence.Agent{f.Agent(1, 11), f.Agent(2, 22)},
		Targets:  [2]fence.Target{{Host: 1, Incarnation: 11, Name: "db1"}, {Host: 2, Incarnation: 22, Name: "db2"}},
		CanWrite: func(host int) bool { return f.CanWrite(host+1, uint64(11*(host+1))) },
		Break: func() func() {
			f.Fail(fence.ErrUnconfirmed)
			return func() { f.Fail(nil) }
		},
		Hang: f.Hang,
	}
}
