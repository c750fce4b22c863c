//go:build libvirt

package libvirt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/fusetest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// lab is two hosts and what they share.
type lab struct {
	t      *testing.T
	dir    string
	faults fusetest.Faults // of the path of host 1 to the disk of the lockspace
	hosts  [3]*host        // by id
}

// host is namespaces of this machine with a bakeryd, or sanlock, and a libvirtd.
type host struct {
	*lab
	id      int
	device  string // path to the disk of the lockspace
	first   *exec.Cmd
	input   io.Closer // its first process ends with it
	daemons map[string]*exec.Cmd
}

// sanlockSocket is where libvirt's plug-in expects its lock manager.
const sanlockSocket = "/run/sanlock/sanlock.sock"

// newLab returns a lab in which both hosts serve, and have the domains defined.
func newLab(t *testing.T, domains ...domain) *lab {
	dir, err := os.MkdirTemp(base, "lab")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	l := &lab{t: t, dir: dir}
	for _, sub := range []string{"leases", "path"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	disk := filepath.Join(dir, "lockspace")
	require.NoError(t, execute(filepath.Join(bin, "bakeryctl"), "format", disk, "--lease", standstill.Lease.String()))
	path, err := fusetest.Open(disk, &l.faults)
	require.NoError(t, err)
	require.NoError(t, fusetest.Mount(filepath.Join(dir, "path"), "disk", path))
	t.Cleanup(func() {
		l.faults.Repair()
		require.NoError(t, fusetest.Unmount(filepath.Join(dir, "path")))
		require.NoError(t, path.Close())
	})
	for _, d := range domains {
		require.NoError(t, os.WriteFile(filepath.Join(dir, d.name+".img"), nil, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, d.name+".xml"), d.xml(dir), 0o644))
	}
	// The plug-in of the first host initializes the leases. It does not expect a second one meanwhile, and does
	// not try again.
	for id, device := range []string{1: filepath.Join(dir, "path", "disk"), 2: disk} {
		if id != 0 {
			l.hosts[id] = l.start(id, device, domains)
		}
	}
	return l
}

func (l *lab) start(id int, device string, domains []domain) *host {
	h := &host{lab: l, id: id, device: device, daemons: map[string]*exec.Cmd{}}
	args := []string{strconv.Itoa(id), root, filepath.Join(l.dir, "leases")}
	for _, d := range domains {
		args = append(args, filepath.Join(l.dir, d.name+".img"))
	}
	h.first = exec.Command("testdata/host", args...)
	h.first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET}
	h.first.Stderr = os.Stderr
	var err error
	h.input, err = h.first.StdinPipe()
	require.NoError(l.t, err)
	out, err := h.first.StdoutPipe()
	require.NoError(l.t, err)
	require.NoError(l.t, h.first.Start())
	l.t.Cleanup(func() { h.die(); h.show() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(l.t, err)
	require.Equal(l.t, "ready\n", line)
	if *reference {
		h.daemon("sanlock", []string{"sanlock", "client", "status"}, "env", "LD_PRELOAD="+filepath.Join(bin, "nolimit.so"),
			"sanlock", "daemon", "-D", "-w", "0", "-h", "0", "-l", "0", "-U", "root", "-G", "root", "-e", fmt.Sprint("host", id))
	} else {
		h.startBakeryd()
	}
	h.startLibvirtd()
	for _, d := range domains {
		h.virsh("define", filepath.Join(l.dir, d.name+".xml")).ok()
	}
	return h
}

// in returns a command on the host.
func (h *host) in(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(h.first.Process.Pid),
		"--mount", "--pid", "--ipc", "--uts", "--net", "--"}, argv...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C"}
	return cmd
}

// output runs a command on the host, and returns what it prints.
func (h *host) output(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := h.in(ctx, argv...).CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return strings.TrimSpace(string(out)), err
}

func (h *host) shell(script string) string {
	h.t.Helper()
	out, err := h.output("sh", "-ec", script)
	require.NoError(h.t, err, out)
	return out
}

func (h *host) log(name string) string {
	return filepath.Join(h.dir, fmt.Sprintf("%s-%d.log", name, h.id))
}

// daemon starts a program that stays, and returns when the host is ready for the check.
func (h *host) daemon(name string, check []string, argv ...string) {
	h.t.Helper()
	log, err := os.OpenFile(h.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(h.t, err)
	defer log.Close()
	cmd := h.in(context.Background(), append([]string{"sh", "-c", `echo $$ >/run/` + name + `.lab && exec "$@"`, "sh"}, argv...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(h.t, cmd.Start())
	h.daemons[name] = cmd
	eventually(h.t, name+" is ready", func() bool {
		_, err := h.output(check...)
		return err == nil
	})
}

// startBakeryd returns when bakeryd has its sockets. It need not be live: its clients do not try again.
func (h *host) startBakeryd() { h.bakeryd("test", "-S", sanlockSocket) }

// restartBakeryd returns when bakeryd is live.
func (h *host) restartBakeryd() { h.bakeryd(live()...) }

func (h *host) bakeryd(check ...string) {
	h.t.Helper()
	h.daemon("bakeryd", check, filepath.Join(bin, "bakeryd"), "--device", h.device, "--host-id", strconv.Itoa(h.id),
		"--sanlock-socket", sanlockSocket)
}

func (h *host) startLibvirtd() {
	h.t.Helper()
	h.daemon("libvirtd", []string{"virsh", "list"}, "libvirtd")
}

// live returns a command that succeeds if the host is live in the lockspace.
func live() []string { return []string{filepath.Join(bin, "bakeryctl"), "lock", "ready", "--", "true"} }

// stop ends a daemon with a signal.
func (h *host) stop(name string, signal syscall.Signal) {
	h.t.Helper()
	h.shell(fmt.Sprintf("kill -%d $(cat /run/%s.lab)", signal, name))
	_ = h.daemons[name].Wait()
	delete(h.daemons, name)
}

// die ends all processes of the host immediately, as a loss of power does.
func (h *host) die() {
	if h.first.ProcessState != nil {
		return
	}
	_ = h.first.Process.Kill()
	_ = h.first.Wait()
	for _, cmd := range h.daemons {
		_ = cmd.Wait()
	}
}

// show prints the logs of the host if the test has failed.
func (h *host) show() {
	if !h.t.Failed() {
		return
	}
	for _, name := range []string{"bakeryd", "sanlock", "libvirtd"} {
		text, err := os.ReadFile(h.log(name))
		if err != nil {
			continue // it was not started
		}
		lines := strings.Split(string(text), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "ethtool ioctl") })
		h.t.Logf("%s of host %d:\n%s", name, h.id, strings.Join(lines, "\n"))
	}
}
