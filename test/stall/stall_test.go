package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/process"
)

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), what)
	}
}

// family is a script whose processes write their number, and then a dot every 10 ms, each to a
// file: a parent, a child, and an orphan in its own session. A fourth one stops itself.
const family = `
beat='echo $$ >$0.tmp; mv $0.tmp $0; while [ -e go ]; do printf . >>$0; sleep 0.01; done'
sh -c "$beat" child &
setsid sh -c 'sh -c "$0" orphan & exit' "$beat" &
sh -c 'echo $$ >self.tmp; mv self.tmp stopped; kill -STOP $$; printf . >>stopped' &
last=$!
sh -c "$beat" parent
kill -CONT $last
wait
exit 7`

// member is a process of the family.
type member struct {
	process.ID
	path string
}

func (m member) state() byte {
	s, _ := process.Read(m.PID)
	return s.State
}

func (m member) size() int64 {
	info, err := os.Stat(m.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func memberAt(t *testing.T, path string) member {
	t.Helper()
	var id process.ID
	eventually(t, path+" has begun", func() bool {
		text, _ := os.ReadFile(path)
		line, _, whole := strings.Cut(string(text), "\n")
		pid, err := strconv.Atoi(line)
		if err == nil && whole {
			id, err = process.Of(pid)
			require.NoError(t, err)
		}
		return id.PID != 0
	})
	return member{id, path}
}

// kinds returns the ways to stop processes that work here.
func kinds(t *testing.T) map[string]tree {
	all := map[string]tree{}
	g, err := newGroup()
	if err == nil {
		t.Cleanup(g.close)
		all["cgroup"] = g
	} else {
		t.Log("no cgroup can be created here: ", err)
	}
	d, err := newDescendants()
	require.NoError(t, err)
	all["signals"] = d
	return all
}

func TestTree_Stopped_StandsStillAndContinues(t *testing.T) {
	for name, of := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", family}, &os.ProcAttr{Dir: dir, Sys: of.attributes()})
			require.NoError(t, err)
			defer p.Kill()
			var moving []member
			for _, one := range []string{"parent", "child", "orphan"} {
				moving = append(moving, memberAt(t, filepath.Join(dir, one)))
			}
			still := memberAt(t, filepath.Join(dir, "stopped"))
			eventually(t, "one has stopped itself", func() bool { return still.state() == 'T' })
			for range 20 {
				require.NoError(t, of.stop())
				eventually(t, "all processes stopped", func() bool { return standStill(t, of, moving) })
				var sizes [3]int64
				for i, m := range moving {
					sizes[i] = m.size()
				}
				require.NoError(t, of.resume())
				for i, m := range moving {
					eventually(t, m.path+" continues", func() bool { return m.size() > sizes[i] })
				}
				require.Equal(t, "T", string(still.state()), "the test's own SIGSTOP stays in effect")
			}
			require.NoError(t, os.Remove(filepath.Join(dir, "go")))
			status := reap(p.Pid)
			require.Equal(t, 7, status.ExitStatus())
			text, err := os.ReadFile(still.path)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%d\n.", still.PID), string(text), "it continued only at the end")
			for _, m := range moving {
				eventually(t, m.path+" ends", func() bool { return !m.Alive() })
			}
		})
	}
}

// standStill reports whether the kernel shows all processes as stopped.
func standStill(t *testing.T, of tree, all []member) bool {
	if g, ok := of.(*group); ok {
		frozen, err := g.frozen()
		require.NoError(t, err)
		members, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		require.NoError(t, err)
		for _, m := range all {
			require.Contains(t, strings.Fields(string(members)), strconv.Itoa(m.PID))
		}
		return frozen
	}
	for _, m := range all {
		// A shell that waits in vfork for a child that was stopped before execve is in state D.
		if state := m.state(); state != 'T' && state != 'D' {
			return false
		}
	}
	return true
}

func TestRun_ExitsAsTheCommand(t *testing.T) {
	for script, code := range map[string]int{"exit 7": 7, "kill -KILL $$": 137, `[ "$BAKERY_TEST_STALL" = 5ms ]`: 0} {
		var said bytes.Buffer
		got := run([]string{"--seed", "42", "--least", "1ms", "--most", "5ms", "--every", "2ms", "sh", "-c", "sleep 0.1; " + script}, &said)
		require.Equal(t, code, got, "%s: %s", script, &said)
		require.Contains(t, said.String(), "stall: seed 42\n")
		require.Regexp(t, `stall: seed 42, [1-9]\d* stalls of [0-9.]+m?s in all`, said.String())
	}
	require.Equal(t, 64, run([]string{"--least", "2s", "--most", "1s", "true"}, new(bytes.Buffer)))
	require.Equal(t, 1, run([]string{"/nonexistent"}, new(bytes.Buffer)))
}

// announced is a tree that reports when it is stopped.
type announced struct {
	tree
	stopped chan struct{}
}

func (a announced) stop() error {
	defer close(a.stopped)
	return a.tree.stop()
}

// A signal ends a stall of an hour, and the command gets it.
func TestStall_Signal_ContinuesAndPassesItOn(t *testing.T) {
	for name, of := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			const script = `trap 'exit 9' TERM; echo $$ >"$0.tmp"; mv "$0.tmp" "$0"; while :; do sleep 0.01; done`
			path := filepath.Join(t.TempDir(), "x")
			p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", script, path}, &os.ProcAttr{Sys: of.attributes()})
			require.NoError(t, err)
			ended, signals := make(chan unix.WaitStatus, 1), make(chan os.Signal, 1)
			go func() { ended <- reap(p.Pid) }()
			memberAt(t, path)
			a := announced{of, make(chan struct{})}
			go func() {
				<-a.stopped
				signals <- unix.SIGTERM
			}()
			s := stalls{rng: rand.New(rand.NewPCG(1, 0)), least: time.Hour, most: time.Hour, every: 1}
			status, err := s.stall(a, p, ended, signals)
			require.NoError(t, err)
			require.Equal(t, 9, status.ExitStatus())
			require.Equal(t, 1, s.n)
		})
	}
}
