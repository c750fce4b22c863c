//go:build integration

package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/fusetest"
)

// A path to the disk that can fail like a cut cable ([fusetest.File]). The server is a separate
// process, so the test itself cannot hang. When the server ends, all IO fails and the filesystem
// can be unmounted.

// cable is the path in the server's process.
type cable struct {
	faults fusetest.Faults
	file   *fusetest.File
}

// troubleWith parses a trouble: reads, writes, all or none, and optionally the bytes from and to.
func troubleWith(words ...string) (fusetest.Trouble, error) {
	what := words[0]
	t := fusetest.Trouble{Reads: what == "reads" || what == "all", Writes: what == "writes" || what == "all"}
	if len(words) == 1 {
		return t, nil
	}
	_, err := fmt.Sscan(strings.Join(words[1:], " "), &t.From, &t.To)
	return t, err
}

// serveDisk mounts the filesystem and obeys standard input until that ends.
func serveDisk(args []string) error {
	dir, path := args[0], args[1]
	c := &cable{}
	var err error
	if c.file, err = fusetest.Open(path, &c.faults); err != nil {
		return err
	}
	if err := fusetest.Mount(dir, "image", c.file); err != nil {
		return err
	}
	defer func() {
		c.faults.Repair()
		_ = fusetest.Unmount(dir) // takes effect when this process ends: no request stays without an answer
	}()
	fmt.Println("mounted")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(c.obey(strings.Fields(in.Text())...))
	}
	return nil
}

// obey executes a line of standard input and returns the answer.
func (c *cable) obey(words ...string) string {
	var err error
	switch words[0] {
	case "twice":
		return fmt.Sprint(c.file.WroteTwice())
	case "hanging":
		return fmt.Sprint(c.faults.Hanging())
	case "go":
		c.faults.Repair()
	case "delay":
		var delay time.Duration
		if delay, err = time.ParseDuration(words[1]); err == nil {
			err = c.starts(words[2:], func(s *fusetest.State, t fusetest.Trouble) { s.Slow, s.Delay = t, delay })
		}
	case "hang":
		err = c.starts(words[1:], func(s *fusetest.State, t fusetest.Trouble) { s.Hang = t })
	case "fail":
		err = c.starts(words[1:], func(s *fusetest.State, t fusetest.Trouble) { s.Fail = t })
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}

// starts puts a trouble into the state of the path.
func (c *cable) starts(words []string, put func(*fusetest.State, fusetest.Trouble)) error {
	t, err := troubleWith(words...)
	if err == nil {
		c.faults.Change(func(s *fusetest.State) { put(s, t) })
	}
	return err
}

// faultyPath controls the path of one host, or of all hosts, to a disk.
type faultyPath struct {
	t       *testing.T
	file    string // at the end of the path
	server  *exec.Cmd
	in      *os.File
	answers *bufio.Reader
}

// breakableHost returns a running host whose path to the disk can fail.
func (s *space) breakableHost(id int) (*host, *faultyPath) {
	s.t.Helper()
	h := s.machine(strconv.Itoa(id))
	path := h.breakable()
	h.up()
	return h, path
}

// breakable gives a host that is down a device whose path can fail. The devices of the others lead
// to the same image.
func (h *host) breakable() *faultyPath {
	h.t.Helper()
	p := h.s.pathTo(h.s.file)
	h.dev = loopOver(h.t, p.file, h.s.sector)
	return p
}

// pathTo returns a path to a file that can fail.
func (s *space) pathTo(file string) *faultyPath {
	s.t.Helper()
	t := s.t
	dir, err := os.MkdirTemp(s.dir, "path")
	require.NoError(t, err)
	p := &faultyPath{t: t, file: filepath.Join(dir, "image"), server: exec.Command(self(), roleDisk, dir, file)}
	p.server.Dir, p.server.Env, p.server.Stderr = base, testEnv, os.Stderr
	p.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, w, err := os.Pipe()
	require.NoError(t, err)
	r, out, err := os.Pipe()
	require.NoError(t, err)
	p.server.Stdin, p.server.Stdout, p.in, p.answers = in, out, w, bufio.NewReader(r)
	require.NoError(t, p.server.Start())
	in.Close()
	out.Close()
	t.Cleanup(func() {
		w.Close()
		late := time.AfterFunc(patience/2, func() { _ = p.server.Process.Kill() })
		err := p.server.Wait()
		late.Stop()
		r.Close()
		require.NoError(t, err, "the server of %s", dir)
		require.NoError(t, os.Remove(dir), "it is still mounted")
	})
	require.Equal(t, "mounted", p.answer())
	return p
}

func (p *faultyPath) answer() string {
	p.t.Helper()
	line, err := p.answers.ReadString('\n')
	require.NoError(p.t, err)
	return strings.TrimSpace(line)
}

func (p *faultyPath) tell(order string) string {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, order)
	require.NoError(p.t, err)
	return p.answer()
}

// trouble starts a fault: "hang", "fail" or "delay DURATION"; "reads", "writes" or "all"; all bytes
// or "FROM TO". It ends before the test cleans up at the latest.
func (p *faultyPath) trouble(how, what string) {
	p.t.Helper()
	p.t.Cleanup(func() { _, _ = fmt.Fprintln(p.in, "go") })
	require.Equal(p.t, "done", p.tell(how+" "+what))
}

func (p *faultyPath) repair() {
	p.t.Helper()
	require.Equal(p.t, "done", p.tell("go"))
}

// hanging returns the number of requests that hang.
func (p *faultyPath) hanging() (n int) {
	p.t.Helper()
	_, err := fmt.Sscan(p.tell("hanging"), &n)
	require.NoError(p.t, err)
	return n
}

// neverTwice fails the test if two writes to one place overlapped.
func (p *faultyPath) neverTwice() {
	p.t.Helper()
	require.Equal(p.t, "0", p.tell("twice"), "writes that overlapped a write in flight")
}

// stuck waits until a thread of the host's bakeryd stays in uninterruptible sleep.
func (h *host) stuck() {
	h.t.Helper()
	var before map[string]string
	eventually(h.t, "a thread of bakeryd is stuck in the kernel", func() bool {
		now := h.asleep()
		for thread, switches := range now {
			if before[thread] == switches {
				return true
			}
		}
		before = now
		time.Sleep(100 * time.Millisecond)
		return false
	})
}

// asleep returns the threads of the host's bakeryd that are in uninterruptible sleep, with the
// number of their context switches.
func (h *host) asleep() map[string]string {
	h.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", h.cmd.Process.Pid))
	require.NoError(h.t, err)
	found := map[string]string{}
	for _, thread := range threads {
		b, _ := os.ReadFile(thread + "/status") // empty if it has ended
		_, switches, _ := strings.Cut(string(b), "voluntary_ctxt_switches:")
		if strings.Contains(string(b), "\nState:\tD") {
			found[thread] = switches
		}
	}
	return found
}
