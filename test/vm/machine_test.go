//go:build vm

package vm

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// machine is a virtual machine. The end of the test kills it.
type machine struct {
	t       *testing.T
	name    string
	qemu    *exec.Cmd
	monitor *monitor
	port    *os.File
	dir     string // its console, its programs' output, and state, which survives a reboot
	console string // path of its kernel's messages
	gone    chan struct{}

	mu       sync.Mutex // guards the fields below
	boots    int
	commands []*command // by id - 1
}

// start starts a machine with additional arguments of qemu, and does not wait for the boot.
func start(t *testing.T, name string, devices ...string) *machine {
	t.Helper()
	return bare.start(t, name, devices...)
}

// start starts a machine of this kind. All except the template continue from its snapshot.
func (k *kind) start(t *testing.T, name string, devices ...string) *machine {
	t.Helper()
	devices = append(k.devices(t, name), devices...)
	if name != Template {
		devices = append(devices, "-incoming", "exec:cat "+k.snapshot(t))
	}
	dir := filepath.Join(place(t), name)
	state := filepath.Join(dir, "state")
	require.NoError(t, os.MkdirAll(state, 0o755))
	m := &machine{t: t, name: name, dir: dir, console: filepath.Join(dir, "console"), gone: make(chan struct{})}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	m.port = os.NewFile(uintptr(pair[0]), "port")
	far := os.NewFile(uintptr(pair[1]), "port")
	defer far.Close()

	m.qemu = exec.Command("qemu-system-x86_64", append([]string{
		"-accel", "tcg", "-machine", "pc", "-cpu", "qemu64", "-m", "384", "-nodefaults", "-no-user-config", "-display", "none",
		"-name", name, "-kernel", kernel, "-initrd", initramfs, "-append", strings.Join(append([]string{"console=ttyS0 quiet panic=-1 vm.name=" + name}, k.words...), " "),
		"-serial", "file:" + m.console, "-serial", "unix:" + m.shell() + ",server=on,wait=off", "-qmp", "stdio",
		"-fsdev", "local,id=state,path=" + state + ",security_model=none", "-device", "virtio-9p-pci,fsdev=state,mount_tag=" + State,
		"-chardev", "socket,id=port,fd=3", "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name=" + Port,
	}, devices...)...)
	m.qemu.Dir = dir
	m.qemu.ExtraFiles = []*os.File{far}
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	says, err := os.Create(m.console + ".qemu")
	require.NoError(t, err)
	defer says.Close()
	m.qemu.Stderr = says
	in, err := m.qemu.StdinPipe()
	require.NoError(t, err)
	out, q, err := os.Pipe()
	require.NoError(t, err)
	m.qemu.Stdout = q
	require.NoError(t, m.qemu.Start())
	q.Close()
	m.monitor = newMonitor(in)

	var readers sync.WaitGroup
	readers.Go(func() { m.monitor.read(out) })
	readers.Go(m.read)
	go func() {
		_ = m.qemu.Wait() // normally killed
		close(m.gone)
	}()
	t.Cleanup(func() {
		m.kill()
		readers.Wait()
		m.port.Close()
		out.Close()
		m.leave()
	})
	m.monitor.do(t, "qmp_capabilities")
	if name != Template {
		t.Cleanup(func() { linger(t) })
		seed := make([]byte, 32)
		_, _ = rand.Read(seed) // never fails
		m.ask(Request{Name: name, Seed: seed})
	}
	return m
}

// during attributes failures of the machine to a subtest, until that ends.
func (m *machine) during(t *testing.T) {
	whole := m.t
	m.t = t
	t.Cleanup(func() { m.t = whole })
}

// boot starts a machine and waits until it has booted.
func boot(t *testing.T, name string, devices ...string) *machine {
	t.Helper()
	m := start(t, name, devices...)
	m.booted(1)
	return m
}

// booted waits until the machine has booted n times.
func (m *machine) booted(n int) {
	m.t.Helper()
	m.bootedWithin(patience, n)
}

func (m *machine) bootedWithin(patience time.Duration, n int) {
	m.t.Helper()
	eventuallyWithin(m.t, patience, fmt.Sprintf("%s has booted (%d)", m.name, n), func() bool {
		m.running()
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.boots >= n
	})
}

// up returns how often the machine has booted.
func (m *machine) up() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

// running fails the test if qemu has ended by itself.
func (m *machine) running() {
	m.t.Helper()
	select {
	case <-m.gone:
		m.t.Fatalf("qemu of %s has ended", m.name)
	default:
	}
}

// kill cuts the power.
func (m *machine) kill() {
	_ = m.qemu.Process.Kill()
	<-m.gone
}

// pause stops the machine's processor and clocks: the machine cannot notice it.
func (m *machine) pause() { m.t.Helper(); m.monitor.do(m.t, "stop") }

func (m *machine) resume() { m.t.Helper(); m.monitor.do(m.t, "cont") }

// freeze stops qemu; the machine's clocks continue, and it notices the time.
func (m *machine) freeze() {
	m.t.Helper()
	require.NoError(m.t, m.qemu.Process.Signal(syscall.SIGSTOP))
}

func (m *machine) thaw() { m.t.Helper(); require.NoError(m.t, m.qemu.Process.Signal(syscall.SIGCONT)) }

// read processes the guest's replies, until qemu ends.
func (m *machine) read() {
	replies := bufio.NewReader(m.port)
	for {
		line, err := replies.ReadBytes('\n')
		if err != nil {
			return
		}
		var r Reply
		if json.Unmarshal(line, &r) != nil {
			continue // cut short by a reset, or the line feed after it
		}
		m.mu.Lock()
		if r.Up {
			m.boots++
			for _, c := range m.commands {
				c.lostMachine()
			}
		} else {
			m.commands[r.ID-1].take(r)
		}
		m.mu.Unlock()
	}
}

// reset presses the reset button.
func (m *machine) reset() { m.t.Helper(); m.monitor.do(m.t, "system_reset") }

// shell returns the path of a socket with a shell of the machine. It is short enough both relative
// to qemu's directory and to others.
func (m *machine) shell() string { return filepath.Join(m.dir, "shell") }

// leave writes its programs' output to files, and after a failure prints the end of its own output.
func (m *machine) leave() {
	m.mu.Lock()
	for _, c := range m.commands {
		said := fmt.Sprintf("%q, ended: %v, exit code: %d, problem: %q\n%s", c.argv, c.ended, c.code, c.problem, strings.Join(c.out, ""))
		_ = os.WriteFile(filepath.Join(m.dir, fmt.Sprintf("program.%d", c.id)), []byte(said), 0o600)
	}
	m.mu.Unlock()
	if !m.t.Failed() {
		return
	}
	for what, path := range map[string]string{"the console": m.console, "qemu": m.console + ".qemu"} {
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(err.Error())
		}
		lines := strings.SplitAfter(string(b), "\n")
		m.t.Logf("%s of %s, its last lines:\n%s", what, m.name, strings.Join(lines[max(0, len(lines)-60):], ""))
	}
	m.t.Logf("events of %s: %v; what it left is in %s", m.name, m.monitor.seen(), m.dir)
}
