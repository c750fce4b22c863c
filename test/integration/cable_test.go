//go:build integration

package integration

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A path to the disk that can fail like a cut cable: a FUSE filesystem of one file, which is
// another name of the image. It can leave the kernel's requests unanswered: the process that made
// them is then in uninterruptible sleep and ignores signals. The server is a separate process, so
// the test itself cannot hang. When the server ends, all IO fails and the filesystem can be
// unmounted.

// trouble selects faulty requests: reads, writes or both, of any of the bytes from..to-1.
type trouble struct {
	reads, writes bool
	from, to      int64
}

// troubleWith parses a trouble: reads, writes, all or none, and optionally the bytes from and to.
func troubleWith(words ...string) (trouble, error) {
	what := words[0]
	t := trouble{reads: what == "reads" || what == "all", writes: what == "writes" || what == "all", to: math.MaxInt64}
	if len(words) == 1 {
		return t, nil
	}
	_, err := fmt.Sscan(strings.Join(words[1:], " "), &t.from, &t.to)
	return t, err
}

// ioRequest is a read or write of length bytes at off by the kernel.
type ioRequest struct {
	write  bool
	off    int64
	length int
}

// of reports whether a request is faulty.
func (t trouble) of(r ioRequest) bool {
	return (r.write && t.writes || !r.write && t.reads) && r.off < t.to && r.off+int64(r.length) > t.from
}

// cable is the file of the filesystem.
type cable struct {
	fs.Inode
	file *os.File

	mu      sync.Mutex // guards the fields below
	change  sync.Cond  // of hang
	hang    trouble
	fail    trouble
	slow    trouble // delayed by delay
	delay   time.Duration
	writing map[int64]int // writes in flight, by offset
	twice   int           // writes that overlapped a write in flight
}

var (
	_ fs.NodeOpener    = (*cable)(nil)
	_ fs.NodeGetattrer = (*cable)(nil)
	_ fs.NodeReader    = (*cable)(nil)
	_ fs.NodeWriter    = (*cable)(nil)
	_ fs.NodeFsyncer   = (*cable)(nil)
)

// Open disables caching, so that a hanging write does not block reads.
func (c *cable) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, 0
}

func (c *cable) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := c.file.Stat()
	if err != nil {
		return fs.ToErrno(err)
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(info.Size())
	return 0
}

// pass blocks while a request hangs or is delayed, and returns its error.
func (c *cable) pass(r ioRequest) syscall.Errno {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.hang.of(r) {
		c.change.Wait()
	}
	if c.fail.of(r) {
		return syscall.EIO
	}
	if delay := c.delay; c.slow.of(r) {
		c.mu.Unlock()
		time.Sleep(delay)
		c.mu.Lock()
	}
	return 0
}

func (c *cable) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := c.pass(ioRequest{off: off, length: len(dest)}); errno != 0 {
		return nil, errno
	}
	n, err := unix.Pread(int(c.file.Fd()), dest, off)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write writes to the image, after a hang too: a write in a fabric may land as late.
func (c *cable) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	c.mu.Lock()
	if c.writing[off]++; c.writing[off] > 1 {
		c.twice++
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writing[off]--
	}()
	if errno := c.pass(ioRequest{write: true, off: off, length: len(data)}); errno != 0 {
		return 0, errno
	}
	n, err := unix.Pwrite(int(c.file.Fd()), data, off)
	return uint32(max(n, 0)), fs.ToErrno(err)
}

func (c *cable) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return fs.ToErrno(c.file.Sync())
}

type cableDir struct {
	fs.Inode
	cable *cable
}

func (d *cableDir) OnAdd(ctx context.Context) {
	d.AddChild("image", d.NewPersistentInode(ctx, d.cable, fs.StableAttr{Mode: syscall.S_IFREG}), true)
}

// serveDisk mounts the filesystem and obeys standard input until that ends.
func serveDisk(args []string) error {
	dir, path := args[0], args[1]
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	c := &cable{file: file, writing: map[int64]int{}}
	c.change.L = &c.mu
	server, err := fs.Mount(dir, &cableDir{cable: c}, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "bakery-test", Name: "bakery-test", MaxBackground: 256,
			ExtraCapabilities: fuse.CAP_ASYNC_DIO}, // otherwise the loop device makes one request at a time
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	defer func() {
		c.obey("go")
		// The lazy unmount takes effect when this process ends: no request stays without an answer.
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}()
	if err := server.WaitMount(); err != nil {
		return err
	}
	fmt.Println("mounted")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(c.obey(strings.Fields(in.Text())...))
	}
	return nil
}

// obey executes a line of standard input and returns the answer.
func (c *cable) obey(words ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.change.Broadcast()
	var err error
	switch words[0] {
	case "hang":
		c.hang, err = troubleWith(words[1:]...)
	case "fail":
		c.fail, err = troubleWith(words[1:]...)
	case "delay":
		if c.delay, err = time.ParseDuration(words[1]); err == nil {
			c.slow, err = troubleWith(words[2:]...)
		}
	case "go":
		c.hang, c.fail, c.slow = trouble{}, trouble{}, trouble{}
	case "twice":
		return fmt.Sprint(c.twice)
	}
	if err != nil {
		return err.Error()
	}
	return "done"
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
