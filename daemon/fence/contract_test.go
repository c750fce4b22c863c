package fence_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/fence"
	"github.com/bakeryd/bakeryd/test/fencetest"
)

func TestContract(t *testing.T) {
	for _, kind := range fence.Kinds {
		t.Run("pr/"+kind, func(t *testing.T) {
			contract(t, synctest.Test, func(t *testing.T) world { return prWorld(t, kind) })
		})
	}
	plain := func(t *testing.T, test func(*testing.T)) { test(t) }
	t.Run("exec", func(t *testing.T) { contract(t, plain, execWorld) })
	t.Run("fake", func(t *testing.T) { contract(t, synctest.Test, fakeWorld) })
}

// world is one kind of agent on one disk, made for one test of the contract.
type world struct {
	Agents   [2]fence.Agent // of hosts that are not registered yet
	Targets  [2]fence.Target
	Bad      fence.Target            // a target that the agents cannot fence
	CanWrite func(host int) bool     // 0 or 1
	Break    func() (repair func())  // no attempt is confirmed until repair is called
	Hang     func() (release func()) // no attempt ends until release is called
}

// contract tests the promises of fence.Agent. in runs each test, as synctest.Test does.
func contract(t *testing.T, in func(*testing.T, func(*testing.T)), newWorld func(*testing.T) world) {
	t.Helper()
	run := func(name string, test func(*testing.T)) {
		t.Run(name, func(t *testing.T) { in(t, test) })
	}
	joined := func(t *testing.T) world {
		w := newWorld(t)
		for i, a := range w.Agents {
			require.NoError(t, a.Register(t.Context()))
			require.True(t, w.CanWrite(i))
		}
		return w
	}
	run("fenced host cannot write", func(t *testing.T) {
		w := joined(t)
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]))
		require.False(t, w.CanWrite(1))
		require.True(t, w.CanWrite(0))
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]), "fenced already")
		require.False(t, w.CanWrite(1))
	})
	run("target that cannot be fenced", func(t *testing.T) {
		w := joined(t)
		require.ErrorIs(t, w.Agents[0].Fence(t.Context(), w.Bad), fence.ErrTarget)
		require.True(t, w.CanWrite(0) && w.CanWrite(1))
	})
	run("not confirmed", func(t *testing.T) {
		w := joined(t)
		repair := w.Break()
		require.Error(t, w.Agents[0].Fence(t.Context(), w.Targets[1]))
		repair()
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]))
		require.False(t, w.CanWrite(1))
	})
	run("returns when the context ends", func(t *testing.T) {
		w := joined(t)
		release := w.Hang()
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Agents[0].Fence(ctx, w.Targets[1]) }()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	run("context over", func(t *testing.T) {
		w := joined(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := w.Agents[0]
		require.ErrorIs(t, a.Register(ctx), context.Canceled)
		require.ErrorIs(t, a.Fence(ctx, w.Targets[1]), context.Canceled)
		require.ErrorIs(t, a.Unregister(ctx), context.Canceled)
		require.True(t, w.CanWrite(1))
	})
	run("several at once", func(t *testing.T) {
		w := joined(t)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = w.Agents[0].Fence(t.Context(), w.Targets[1]) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.False(t, w.CanWrite(1))
	})
	run("leave", func(t *testing.T) {
		w := joined(t)
		require.NoError(t, w.Agents[1].Unregister(t.Context()))
		require.NoError(t, w.Agents[1].Unregister(t.Context()))
		require.NoError(t, w.Agents[0].Fence(t.Context(), w.Targets[1]), "gone")
		require.NotEmpty(t, w.Agents[0].String())
	})
}

func prWorld(t *testing.T, kind string) world {
	w := fence.NewTesting(t, kind)
	return world{
		Agents: w.Agents, CanWrite: w.CanWrite, Break: w.Break, Hang: w.Hang,
		Targets: [2]fence.Target{{Host: 1, Name: "db1", Key: w.Keys[0]}, {Host: 2, Name: "db2", Key: w.Keys[1]}},
		Bad:     fence.Target{Host: 3, Name: "db3"},
	}
}

// execWorld returns a disk that is a directory, and a fence command that creates a file there for
// each host.
func execWorld(t *testing.T) world {
	dir := t.TempDir()
	put := func(name string) func() {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return func() { require.NoError(t, os.Remove(path)) }
	}
	t.Setenv("DISK", dir)
	w := world{
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

func fakeWorld(*testing.T) world {
	f := &fencetest.Fabric{}
	return world{
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
