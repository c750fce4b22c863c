//go:build integration

package integration

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
)

var (
	rounds = flag.Int("rounds", 12, "faults of TestRandomFaults")
	seed   = flag.Uint64("seed", 0, "of TestRandomFaults; 0: another one each time")
)

// TestRandomFaults: one fault after the other on three hosts, whose clients
// increment a counter on the shared device. A host that was killed or stopped
// stays so until its turn comes again, so that faults overlap.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d rounds: repeat them with -rounds %d -seed %d", *rounds, *rounds, *seed)
	s := briefSpace(t)
	c := chaos{t: t, s: s, random: rand.New(rand.NewPCG(*seed, 0)), codes: map[int]int{}}
	c.hosts = s.hosts(3)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i, h := range c.hosts {
		for k := range 2 {
			random := rand.New(rand.NewPCG(*seed, uint64(10+2*i+k)))
			clients.Go(func() { c.client(ctx, h, fmt.Sprintf("host-%s-client-%d", h.id, k), random) })
		}
	}
	defer func() { // unless the test ends here and now, they have ended
		stop()
		for _, h := range c.hosts {
			h.all(syscall.SIGKILL)
		}
		clients.Wait()
	}()
	began := sinceBoot()
	state := make([]string, len(c.hosts))
	for round := range *rounds {
		i := c.random.IntN(len(c.hosts))
		state[i] = c.fault(round, c.hosts[i], state[i])
		until(sinceBoot() + time.Duration(c.random.Float64()*0.8*float64(briefLease)))
	}
	for i, h := range c.hosts {
		c.recover(h, state[i])
	}
	healed := sinceBoot()
	for _, h := range c.hosts {
		eventually(t, "host "+h.id+" works again", func() bool { return h.lock("-w", "10", "other", "--", "true").code == 0 })
		before := len(s.journal("counter").stays())
		eventually(t, "the counter grows", func() bool { return len(s.journal("counter").stays()) > before })
	}
	measured(t, "last fault healed to every host at work, lease "+briefLease.String(), sinceBoot()-healed)
	stop()
	clients.Wait()
	c.verify(sinceBoot() - began)
}

// chaos is what the faults of a test are made by.
type chaos struct {
	t      *testing.T
	s      *space
	hosts  []*host
	random *rand.Rand

	mu    sync.Mutex  // guards codes
	codes map[int]int // how often clients ended with an exit code
}

// client runs one command after the other under the lock, as an operator's loop does.
func (c *chaos) client(ctx context.Context, h *host, name string, random *rand.Rand) {
	said, err := os.OpenFile(filepath.Join(h.dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer said.Close()
	for i := 0; ctx.Err() == nil; i++ {
		hold := random.IntN(20)
		if random.IntN(10) == 0 {
			hold = random.IntN(int(3 * briefLease / 2 / time.Millisecond))
		}
		cmd := exec.Command(h.programs.bakeryctl, "--socket", h.socket, "lock", "-w", fmt.Sprint(10*briefLease.Seconds()), "counter", "--",
			self(), roleCounter, c.s.journal("counter").path, fmt.Sprint(name, "-", i), h.dev, itoa(c.s.spare()), strconv.Itoa(hold))
		cmd.Dir, cmd.Env, cmd.Stderr = h.dir, testEnv, said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			c.t.Error(err)
			return
		}
		_ = cmd.Wait() // what it returns is in cmd.ProcessState as well
		code := cmd.ProcessState.ExitCode()
		c.mu.Lock()
		c.codes[code]++
		c.mu.Unlock()
		switch code {
		case 0:
		case -1, 75: // killed, or the lock was lost
		case 69: // there is no bakeryd
			time.Sleep(100 * time.Millisecond)
		default:
			text, _ := os.ReadFile(said.Name())
			c.t.Errorf("%s ended with exit code %d, and said so far: %s", name, code, text)
			return
		}
	}
}

// fault does the next thing to a host, and returns how that is then: empty (well), "down" or "stopped".
func (c *chaos) fault(round int, h *host, state string) string {
	if state != "" {
		c.t.Logf("round %d: host %s, which is %s, goes on", round, h.id, state)
		c.recover(h, state)
		return ""
	}
	faults := []string{"bakeryd SIGKILL", "bakeryd SIGTERM", "bakeryd SIGSTOP", "power off", "wrapper SIGKILL", "bakeryd SIGKILL, restart"}
	fault := faults[c.random.IntN(len(faults))]
	c.t.Logf("round %d: host %s: %s", round, h.id, fault)
	switch fault {
	case "bakeryd SIGKILL":
		h.crash()
		return "down"
	case "bakeryd SIGTERM":
		h.leave()
		return "down"
	case "bakeryd SIGSTOP":
		h.signal(syscall.SIGSTOP)
		return "stopped"
	case "power off":
		h.powerOff()
		return "down"
	case "bakeryd SIGKILL, restart":
		h.crash()
		h.up()
	case "wrapper SIGKILL":
		c.orphan(h)
	}
	return ""
}

// orphan kills the wrappers of a host, and waits until their commands have ended:
// with bakeryd gone too, nobody would be left to stop them.
func (c *chaos) orphan(h *host) {
	running := func(path string) (pids []int) {
		for _, pid := range h.processes() {
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == path {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	for _, pid := range running(h.programs.bakeryctl) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	orphans := running(self())
	eventually(c.t, "the orphans have ended", func() bool { return !slices.ContainsFunc(orphans, breathes) })
}

func (c *chaos) recover(h *host, state string) {
	switch state {
	case "down":
		h.up()
	case "stopped":
		h.signal(syscall.SIGCONT)
	}
}

// verify holds what the commands wrote against each other, and against the counter.
func (c *chaos) verify(took time.Duration) {
	c.t.Helper()
	j := c.s.journal("counter")
	j.exclusive()
	stays := j.stays()
	var expect uint64 // what the next one is to read
	var unsure bool   // or one less: who wrote it may have been killed before
	for _, s := range stays {
		if s.read == nil {
			continue // killed before it did anything
		}
		if *s.read != expect && !(unsure && *s.read+1 == expect) {
			c.t.Errorf("%s (token %d) read %d, want %d: an update was lost", s.name, s.token, *s.read, expect)
		}
		expect, unsure = *s.read+1, s.wrote == nil
	}
	dev, err := blockdev.Open(c.s.dev, blockdev.Options{})
	require.NoError(c.t, err)
	defer dev.Close()
	block := blockdev.Alloc(spareSize)
	require.NoError(c.t, dev.Read(block, c.s.spare()))
	n := binary.LittleEndian.Uint64(block)
	require.True(c.t, n == expect || unsure && n+1 == expect, "the counter is %d, want %d", n, expect)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("measured: %d rounds of random faults in %.0f s: %d holds, counter %d, exit codes %v", *rounds, took.Seconds(), len(stays), n, c.codes)
}
