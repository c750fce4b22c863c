package sanlock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/sanlock"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
	"github.com/bakeryd/bakeryd/test/logtest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

const (
	// patience limits waits for what must happen. Only a test that fails waits for so long.
	patience = 2 * time.Minute
	mib      = 1 << 20
)

// calm is a lease that no load of the machine loses: then the server would kill its clients, among them this process.
// A join that a stall delays waits for it.
var calm = standstill.Outlives(30 * time.Second)

// short is a lease whose end a test waits for. Its clients are processes of their own.
var short = standstill.Outlives(6 * time.Second)

func errno(e syscall.Errno) wire.Code { return wire.Errno(e) }

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// cluster is a bakery lockspace, and a file with the areas of the clients.
type cluster struct {
	*lockspacetest.Lockspace
	t     *testing.T
	areas string
}

func newCluster(t *testing.T, lease time.Duration) *cluster {
	t.Parallel()
	c := &cluster{Lockspace: lockspacetest.New(t, 4, 40, time.Now()), t: t, areas: filepath.Join(lockspacetest.Dir(t), "areas")}
	c.SB.Lease = lease
	c.Format()
	require.NoError(t, os.WriteFile(c.areas, nil, 0o600))
	return c
}

func (c *cluster) at(number int) wire.Disk {
	return wire.Disk{Path: c.areas, Offset: uint64(number) * mib}
}

func (c *cluster) lockspace(name string, id uint64) wire.Lockspace {
	return wire.Lockspace{Name: name, HostID: id, Disk: c.at(0)}
}

// res returns a resource of lockspace ls that is at an area.
func (c *cluster) res(name string, number int, flags uint32) wire.Resource {
	return wire.Resource{Lockspace: "ls", Name: name, Flags: flags, NumDisks: 1, Disks: []wire.Disk{c.at(number)}}
}

// host is a host with a server of sanlock's socket.
type host struct {
	*cluster
	svc    *daemon.Service
	id     int
	log    *logtest.Log
	cfg    sanlock.Config
	joined chan *daemon.Host
	ended  chan error
	dir    string

	mu   sync.Mutex // guards the rest
	srv  *sanlock.Server
	ln   net.Listener
	h    *daemon.Host     // of the current term
	disk *disktest.Faulty // of the current term
	kept map[string]*os.File
}

// host starts a host, which is in the lockspace when it returns.
func (c *cluster) host(id int, change ...func(*host)) *host {
	c.t.Helper()
	h := &host{cluster: c, id: id, log: &logtest.Log{}, joined: make(chan *daemon.Host, 10), ended: make(chan error, 1),
		dir: c.t.TempDir(), kept: map[string]*os.File{}}
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.cfg = sanlock.Config{Log: logger, Clock: clock.Boottime, May: func(sanlock.Caller, string) error { return nil }}
	for _, f := range change {
		f(h)
	}
	h.svc = daemon.NewService(daemon.Config{Devices: []string{"memory"}, HostID: id, Name: fmt.Sprintf("db%d", id), RuntimeDir: h.dir, StateDir: h.dir,
		Clock: clock.Boottime, Keep: true, Logger: logger, Open: func() (blockdev.Device, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.disk = disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
			return h.disk, nil
		}}, func(d *daemon.Host) {
		h.mu.Lock()
		h.h = d
		srv := h.srv
		h.mu.Unlock()
		srv.Begin(d)
		h.joined <- d
	})
	h.serve(nil)
	ctx, stop := context.WithCancel(context.Background())
	go func() { h.ended <- h.svc.Run(ctx) }()
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("log of host %d:\n%s", id, h.log)
			return // its clients may include this process, which the end of the host would kill
		}
		h.leaves()
		stop()
	})
	h.joins()
	return h
}

// joins waits for the next term.
func (h *host) joins() {
	h.t.Helper()
	select {
	case <-h.joined:
	case err := <-h.ended:
		h.t.Fatalf("the service has ended: %v", err)
	case <-time.After(patience):
		h.t.Fatal("the host does not join")
	}
}

// leaves removes all lockspaces and ends the host.
func (h *host) leaves() {
	h.t.Helper()
	if h.ended == nil {
		return
	}
	eventually(h.t, "the connections of this process are seen to be closed", func() bool { return h.users() == 0 })
	for _, l := range h.lockspaces() {
		require.Equal(h.t, wire.OK, h.ask(wire.Request{Header: wire.Header{Command: wire.RemLockspace}, Lockspace: l}).code)
	}
	h.svc.Drain()
	h.ends()
	h.close()
}

// ends waits for the end of the service.
func (h *host) ends() {
	h.t.Helper()
	select {
	case err := <-h.ended:
		require.NoError(h.t, err)
	case <-time.After(patience):
		h.t.Fatal("the service does not end")
	}
	h.ended = nil
}

func (h *host) server() *sanlock.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.srv
}

func (h *host) term() *daemon.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.h
}

func (h *host) faulty() *disktest.Faulty {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.disk
}

func (h *host) socket() string { return filepath.Join(h.dir, "sanlock.sock") }

// serve starts a server with the connections that the previous one had.
func (h *host) serve(kept map[string]*os.File) {
	h.t.Helper()
	ln, err := net.Listen("unix", h.socket())
	require.NoError(h.t, err)
	srv := sanlock.New(h.cfg, kept)
	h.mu.Lock()
	h.srv, h.ln = srv, ln
	h.mu.Unlock()
	go func() { _ = srv.Serve(ln) }()
}

// close ends the server, as the end of the process does.
func (h *host) close() {
	h.server().Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.ln.Close()
}

// restart replaces the server by a next one, as a restart of bakeryd does.
func (h *host) restart() {
	h.t.Helper()
	h.close()
	h.reopen()
}

// reopen starts the next server after one that is closed. Connections stay kept, for another one.
func (h *host) reopen() {
	h.t.Helper()
	kept := map[string]*os.File{}
	h.mu.Lock()
	for name, f := range h.kept {
		kept[name] = duplicate(f.Fd(), name)
	}
	h.mu.Unlock()
	h.serve(kept)
	h.server().Begin(h.term())
}

// keeping has the connections kept over a restart.
func keeping(h *host) {
	h.cfg.Keep = func(name string, fd int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.kept[name] = duplicate(uintptr(fd), name)
	}
	h.cfg.Drop = func(name string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if f := h.kept[name]; f != nil {
			_ = f.Close()
			delete(h.kept, name)
		}
	}
}

func duplicate(fd uintptr, name string) *os.File {
	again, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(again), name)
}

func (h *host) state() string { return sanlock.StatePath(h.dir, h.SB.UUID, h.id) }

// client is a connection.
type client struct {
	*host
	out  io.Writer
	in   io.Reader
	pid  int
	end  func()
	conn *net.UnixConn // nil of another process
}

// connect returns a connection of this process. A test must close it before its lockspace ends: else the server kills
// this process.
func (h *host) connect() *client {
	h.t.Helper()
	conn, err := net.Dial("unix", h.socket())
	require.NoError(h.t, err)
	require.NoError(h.t, conn.SetDeadline(time.Now().Add(patience)))
	c := &client{host: h, out: conn, in: conn, pid: os.Getpid(), end: func() { _ = conn.Close() }, conn: conn.(*net.UnixConn)}
	h.t.Cleanup(c.end)
	return c
}

// register returns a registered connection of this process.
func (h *host) register() *client {
	h.t.Helper()
	c := h.connect()
	c.registers()
	return c
}

func (c *client) registers() {
	c.t.Helper()
	c.send(wire.Request{Header: wire.Header{Command: wire.Register}})
	require.Equal(c.t, wire.OK, c.inquire().code, "it is registered when the next command is answered")
}

// child is a connection of another process.
type child struct {
	*client
	cmd    *exec.Cmd
	signal string        // file to which it writes what signals it got; "" if it ends by them
	waited chan struct{} // closed when it has ended
}

// start returns the registered connection of a process that ends by SIGTERM.
func (h *host) start() *child { return h.startAs(0, "") }

// startAs returns the registered connection of a process of a user. It records SIGTERM in a file unless that is "".
func (h *host) startAs(uid int, record string) *child {
	h.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), relayed+"="+h.socket(), recorded+"="+record)
	cmd.Stderr = os.Stderr
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	in, err := cmd.StdinPipe()
	require.NoError(h.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	require.NoError(h.t, cmd.Start())
	c := &child{client: &client{host: h, out: in, in: out, pid: cmd.Process.Pid, end: func() { _ = in.Close() }}, cmd: cmd, signal: record,
		waited: make(chan struct{})}
	require.NoError(h.t, out.(*os.File).SetReadDeadline(time.Now().Add(patience)))
	go func() {
		cmd.ProcessState, _ = cmd.Process.Wait() // not cmd.Wait, which would close the pipe that the test reads
		close(c.waited)
	}()
	h.t.Cleanup(func() { c.kill(); _ = in.Close(); _ = out.Close() })
	c.registers()
	return c
}

// kill kills the process, and returns when it has ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.waited
}

// ends waits for the end of the process.
func (c *child) ends() {
	c.t.Helper()
	select {
	case <-c.waited:
	case <-time.After(patience):
		c.t.Fatal("the client does not end")
	}
}

// status returns how the process has ended.
func (c *child) status() syscall.WaitStatus { return c.cmd.ProcessState.Sys().(syscall.WaitStatus) }

func (c *child) number() string { return strconv.Itoa(c.pid) }

// signals returns the names of the signals that the process got.
func (c *child) signals() string {
	text, err := os.ReadFile(c.signal)
	if !os.IsNotExist(err) {
		require.NoError(c.t, err)
	}
	return string(text)
}

// answer is an answer of the server.
type answer struct {
	cmd, flags, seq uint32
	code            wire.Code
	data            uint32
	body            []byte
}

func (c *client) send(q wire.Request) {
	c.t.Helper()
	if q.Version == 0 {
		q.Version = wire.Proto
	}
	_, err := c.out.Write(q.Append(nil))
	require.NoError(c.t, err)
}

// receive returns the next answer.
func (c *client) receive() answer {
	c.t.Helper()
	a, err := c.read()
	require.NoError(c.t, err)
	return a
}

func (c *client) read() (a answer, err error) {
	var header [8]uint32
	if err := binary.Read(c.in, binary.NativeEndian, &header); err != nil {
		return a, err
	}
	if header[0] != wire.Magic || header[1] != wire.Proto || header[4] < wire.HeaderSize {
		return a, fmt.Errorf("invalid header %#x", header)
	}
	a = answer{cmd: header[2], flags: header[3], seq: header[5], code: wire.Code(header[6]), data: header[7]}
	switch wire.Command(a.cmd) {
	case wire.Status, wire.HostStatus: // the length in the header does not count the states
		a.body, err = io.ReadAll(c.in)
	default:
		a.body = make([]byte, header[4]-wire.HeaderSize)
		_, err = io.ReadFull(c.in, a.body)
	}
	return a, err
}

// ask sends a request and returns its answer.
func (c *client) ask(q wire.Request) answer {
	c.t.Helper()
	c.send(q)
	a := c.receive()
	require.Equal(c.t, uint32(q.Command), a.cmd)
	return a
}

// ask sends a request on a connection of its own, which is not registered.
func (h *host) ask(q wire.Request) answer {
	h.t.Helper()
	c := h.connect()
	defer c.end()
	return c.ask(q)
}

func command(cmd wire.Command, flags uint32, rs ...wire.Resource) wire.Request {
	return wire.Request{Header: wire.Header{Command: cmd, Flags: flags, Data2: wire.Self}, Resources: rs}
}

// bare returns resources without their disks.
func bare(rs []wire.Resource) (out []wire.Resource) {
	for _, r := range rs {
		r.Disks = nil
		out = append(out, r)
	}
	return out
}

func (c *client) acquire(flags uint32, rs ...wire.Resource) wire.Code {
	c.t.Helper()
	return c.ask(command(wire.Acquire, flags, rs...)).code
}

func (c *client) release(flags uint32, rs ...wire.Resource) wire.Code {
	c.t.Helper()
	return c.ask(command(wire.Release, flags, bare(rs)...)).code
}

func (c *client) convert(flags uint32, r wire.Resource) wire.Code {
	c.t.Helper()
	return c.ask(command(wire.Convert, flags, bare([]wire.Resource{r})...)).code
}

func (c *client) inquire() answer {
	c.t.Helper()
	return c.ask(command(wire.Inquire, 0))
}

// has returns what inquire says, without the zero at its end.
func (c *client) has() string {
	c.t.Helper()
	a := c.inquire()
	require.Equal(c.t, wire.OK, a.code)
	return string(bytes.TrimRight(a.body, "\x00"))
}

// lver returns the version of the only resource that a client has.
func (c *client) lver() (v uint64) {
	c.t.Helper()
	has := c.has()
	v, err := strconv.ParseUint(has[strings.LastIndex(has, ":")+1:], 10, 64)
	require.NoError(c.t, err)
	return v
}

func (h *host) setLVB(r wire.Resource, value string) wire.Code {
	h.t.Helper()
	q := command(wire.SetLVB, 0, bare([]wire.Resource{r})...)
	q.LVB = []byte(value)
	return h.ask(q).code
}

// lvb returns the value block of a resource, without zeros at its end.
func (h *host) lvb(r wire.Resource) string {
	h.t.Helper()
	a := h.ask(command(wire.GetLVB, 0, bare([]wire.Resource{r})...))
	require.Equal(h.t, wire.OK, a.code)
	require.Len(h.t, a.body, 512)
	return string(bytes.TrimRight(a.body, "\x00"))
}

// space sends a command about lockspace ls of this host.
func (h *host) space(cmd wire.Command, flags uint32) wire.Code {
	h.t.Helper()
	return h.ask(wire.Request{Header: wire.Header{Command: cmd, Flags: flags}, Lockspace: h.lockspace("ls", uint64(h.id))}).code
}

func (h *host) configure(what uint32) wire.Code {
	h.t.Helper()
	return h.ask(wire.Request{Header: wire.Header{Command: wire.SetConfig, Data: what}, Lockspace: wire.Lockspace{Name: "ls"}}).code
}

// writeLockspace initializes the area of lockspace ls.
func (h *host) writeLockspace() {
	h.t.Helper()
	require.Equal(h.t, wire.OK, h.space(wire.WriteLockspace, 0))
}

// add adds lockspace ls with the id of this host.
func (h *host) add() {
	h.t.Helper()
	require.Equal(h.t, wire.OK, h.space(wire.AddLockspace, 0))
}

// write initializes the area of a resource, and returns the resource.
func (h *host) write(name string, number int) wire.Resource {
	h.t.Helper()
	r := h.res(name, number, 0)
	require.Equal(h.t, wire.OK, h.ask(command(wire.WriteResource, 0, r)).code)
	return r
}

// ready returns a host that is in lockspace ls.
func (c *cluster) ready(id int, change ...func(*host)) *host {
	c.t.Helper()
	h := c.host(id, change...)
	h.writeLockspace()
	h.add()
	return h
}

// lockspaces returns the lockspaces of a host.
func (h *host) lockspaces() (all []wire.Lockspace) {
	h.t.Helper()
	a := h.ask(wire.Request{Header: wire.Header{Command: wire.GetLockspaces}})
	require.Equal(h.t, wire.OK, a.code)
	for b := a.body; len(b) > 0; b = b[wire.LockspaceSize:] {
		name, _, _ := bytes.Cut(b[:wire.NameLen], []byte{0})
		path, _, _ := bytes.Cut(b[wire.NameLen+16:wire.NameLen+16+wire.PathLen], []byte{0})
		all = append(all, wire.Lockspace{Name: string(name), HostID: binary.NativeEndian.Uint64(b[wire.NameLen:]), Flags: binary.NativeEndian.Uint32(b[wire.NameLen+8:]),
			Disk: wire.Disk{Path: string(path), Offset: binary.NativeEndian.Uint64(b[wire.NameLen+16+wire.PathLen:])}})
	}
	require.Len(h.t, all, int(a.data))
	return all
}

// states returns the texts of the states of a type that status shows.
func (h *host) states(of uint32) (texts []string) {
	h.t.Helper()
	b := h.ask(wire.Request{Header: wire.Header{Command: wire.Status}}).body
	for len(b) > 0 {
		kind, n := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[72:])
		text := string(bytes.TrimRight(b[wire.StateSize:wire.StateSize+n], "\x00"))
		b = b[wire.StateSize+n:]
		switch kind {
		case wire.StateLockspace:
			b = b[wire.LockspaceSize:]
		case wire.StateResource:
			disks := binary.NativeEndian.Uint32(b[wire.ResourceSize-4:])
			b = b[wire.ResourceSize+int(disks)*wire.DiskSize:]
		}
		if kind == of {
			texts = append(texts, text)
		}
	}
	return texts
}

// users returns the number of clients.
func (h *host) users() int {
	h.t.Helper()
	return len(h.states(wire.StateClient))
}

// hosts returns the state of each host of lockspace ls by its id; the state of one if id is not 0.
func (h *host) hosts(id uint64) map[uint64]wire.Host {
	h.t.Helper()
	a := h.ask(wire.Request{Header: wire.Header{Command: wire.GetHosts}, Lockspace: wire.Lockspace{Name: "ls", HostID: id}})
	require.Equal(h.t, wire.OK, a.code)
	return decodeHosts(h.t, a.body)
}

func decodeHosts(t *testing.T, b []byte) map[uint64]wire.Host {
	found := map[uint64]wire.Host{}
	for ; len(b) > 0; b = b[wire.HostSize:] {
		var n [3]uint64
		var m [2]uint32
		_, err := binary.Decode(b, binary.NativeEndian, &n)
		require.NoError(t, err)
		_, err = binary.Decode(b[24:], binary.NativeEndian, &m)
		require.NoError(t, err)
		found[n[0]] = wire.Host{ID: n[0], Generation: n[1], Timestamp: n[2], IOTimeout: m[0], Flags: m[1]}
	}
	return found
}
