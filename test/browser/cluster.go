package browser

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Generous bounds every wait, also on a busy machine.
const Generous = time.Minute

// Soon is the polling interval.
const Soon = 20 * time.Millisecond

// Build builds the programs once.
var Build = sync.OnceValue(func() error {
	cmd := exec.Command("../../cmd/build", Bin, "-buildvcs=false")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// Cluster is some hosts on one file, each a bakeryd with its own directories.
type Cluster struct {
	T  *testing.T
	Up map[int]*exec.Cmd // running ones, by id

	dir  string
	mu   sync.Mutex
	kids []*exec.Cmd
}

// Path returns a path below the cluster's directory; host 1 has h1, and so on.
func (c *Cluster) Path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// NewCluster formats a file, and starts a number of hosts on it.
func NewCluster(t *testing.T, dir string, hosts int, format ...string) *Cluster {
	t.Helper()
	require.NoError(t, Build())
	c := &Cluster{T: t, dir: dir, Up: map[int]*exec.Cmd{}}
	t.Cleanup(c.end)
	c.Run(1, 0, append([]string{"format", c.Path("locks.img"), "--hosts", "8"}, format...)...)
	for id := 1; id <= hosts; id++ {
		c.Start(id)
	}
	return c
}

func (c *Cluster) end() {
	for _, cmd := range c.Up {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.kids {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

// Start starts a bakeryd, and waits until it has joined.
func (c *Cluster) Start(id int) {
	c.T.Helper()
	home := c.Path(fmt.Sprint("h", id))
	require.NoError(c.T, os.MkdirAll(filepath.Join(home, "run"), 0o700))
	require.NoError(c.T, os.MkdirAll(filepath.Join(home, "state"), 0o700))
	cmd := exec.Command(filepath.Join(Bin, "bakeryd"), "--device", "./locks.img", "--host-id", strconv.Itoa(id), "--name", fmt.Sprint("db", id),
		"--socket", filepath.Join(home, "s"), "--runtime-dir", filepath.Join(home, "run"), "--state-dir", filepath.Join(home, "state"))
	cmd.Dir = c.dir
	log, err := os.OpenFile(filepath.Join(home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.T, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(c.T, cmd.Start())
	c.Up[id] = cmd
	c.Until(id, "joined", "\"state\": \"live\"")
}

// Kill ends a bakeryd, like a loss of power.
func (c *Cluster) Kill(id int) {
	require.NoError(c.T, c.Up[id].Process.Kill())
	_ = c.Up[id].Wait()
	delete(c.Up, id)
}

// Until waits until a host's status contains a text.
func (c *Cluster) Until(id int, what, says string) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		out, err := c.Ctl(id, "status", "--json").Output()
		return err == nil && bytes.Contains(out, []byte(says))
	}, Generous, Soon, "host %d: %s", id, what)
}

// Noted waits for a host's event about a lock.
func (c *Cluster) Noted(id int, kind, lock string) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		out, err := c.Ctl(id, "events", "--json", lock).Output()
		return err == nil && bytes.Contains(out, fmt.Appendf(nil, `"kind":%q,"lock":%q`, kind, lock))
	}, Generous, Soon, "host %d: %s %s", id, kind, lock)
}

// Ctl returns a command that runs bakeryctl on a host.
func (c *Cluster) Ctl(id int, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(Bin, "bakeryctl"), append([]string{"--socket", c.Path(fmt.Sprint("h", id), "s")}, args...)...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "PATH="+Bin+":"+os.Getenv("PATH"))
	return cmd
}

// Run runs bakeryctl, checks its exit code, and returns its output.
func (c *Cluster) Run(id, want int, args ...string) string {
	c.T.Helper()
	cmd := c.Ctl(id, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	require.Equal(c.T, want, cmd.ProcessState.ExitCode(), "bakeryctl %q: %s", args, errs.String())
	return out.String()
}

// Begin starts bakeryctl in its own process group.
func (c *Cluster) Begin(id int, args ...string) *exec.Cmd {
	c.T.Helper()
	cmd := c.Ctl(id, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(c.T, cmd.Start())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kids = append(c.kids, cmd)
	return cmd
}
