package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// host is a machine: a path to each disk, its own directories, machine id and boot id, and, while
// it is up, a bakeryd and clients.
type host struct {
	s   *soak
	id  int
	dir string // working directory of its processes

	paths []*path // by disk
	made  int     // number of paths created so far

	daemon        *process
	log           string
	lost          int       // number of lost leases that checkCalm has seen
	recoversSince time.Time // when the cause of the fault was removed: the recovery begins

	mu       sync.Mutex // guards the fields below
	off      bool       // paused or without power: nothing is started
	expected bool       // the end of bakeryd is no violation
	workers  []*process
	wrappers map[string]*wrapper // of the chaos run, by name
}

func newHost(ctx context.Context, s *soak, id int) (*host, error) {
	h := &host{s: s, id: id, dir: filepath.Join(s.dir, fmt.Sprintf("h%d", id)), wrappers: map[string]*wrapper{}}
	h.log = filepath.Join(h.dir, "bakeryd.log")
	for _, dir := range []string{h.dir, h.run(), h.state(), filepath.Join(h.dir, "etc")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"passwd", "group"} {
		b, err := os.ReadFile("/etc/" + name)
		if name == "group" && s.chaos != nil {
			b = append(fmt.Appendf(nil, "bakery:x:%d:\n", chaosGroup), b...)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(h.dir, "etc", name), b, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	err := errors.Join(h.newMachine(), h.newBoot())
	for i := range s.disks {
		h.paths = append(h.paths, nil)
		err = errors.Join(err, h.connect(ctx, i))
	}
	return h, err
}

// device returns the device of a disk for bakeryd: a link to a loop device.
func (h *host) device(disk int) string { return filepath.Join(h.dir, fmt.Sprint("lun", disk+1)) }

func (h *host) run() string    { return filepath.Join(h.dir, "run") }
func (h *host) state() string  { return filepath.Join(h.dir, "state") }
func (h *host) socket() string { return filepath.Join(h.run(), "s") }

func (h *host) client() *client.Client { return client.New(h.socket()) }

// newMachine and newBoot change the machine id and boot id of a host that is off.
func (h *host) newMachine() error {
	return os.WriteFile(filepath.Join(h.dir, "etc", "machine-id"), []byte(h.s.newID()+"\n"), 0o644)
}

func (h *host) newBoot() error {
	id := h.s.newID()
	text := fmt.Sprintf("%s-%s-%s-%s-%s\n", id[:8], id[8:12], id[12:16], id[16:20], id[20:])
	return os.WriteFile(filepath.Join(h.dir, "boot_id"), []byte(text), 0o644)
}

// bootDaemon runs a program with the ids in the working directory mounted over the machine's own.
func bootDaemon(_ context.Context, argv []string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	for _, m := range []struct {
		from, to string
		flags    uintptr
	}{{"", "/", unix.MS_REC | unix.MS_PRIVATE}, {"boot_id", "/proc/sys/kernel/random/boot_id", unix.MS_BIND}, {"etc", "/etc", unix.MS_BIND}} {
		if err := unix.Mount(m.from, m.to, "", m.flags, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.from, m.to, err)
		}
	}
	return fmt.Errorf("%s: %w", argv[0], unix.Exec(argv[0], argv, os.Environ()))
}

// connect gives the host a new path to a disk.
func (h *host) connect(ctx context.Context, disk int) error {
	h.made++
	p, err := h.s.newPath(ctx, h.s.disks[disk], fmt.Sprintf("path%d.%d", h.id, h.made))
	if err != nil {
		return err
	}
	h.paths[disk] = p
	next := h.device(disk) + ".new"
	if err := os.Symlink(p.loop, next); err != nil {
		return err
	}
	return os.Rename(next, h.device(disk))
}

// start starts bakeryd and does not wait for the join.
func (h *host) start() error {
	h.recoversSince = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	argv := []string{h.s.self, "boot", h.s.bakeryd, "--host-id", fmt.Sprint(h.id),
		"--name", fmt.Sprintf("host%d", h.id), "--socket", h.socket(), "--runtime-dir", h.run(), "--state-dir", h.state()}
	for i := range h.paths {
		argv = append(argv, "--device", h.device(i))
	}
	p, err := start(h.dir, h.log, nil, argv...)
	if err != nil {
		return err
	}
	h.daemon, h.expected = p, false
	go func() {
		<-p.ended
		h.mu.Lock()
		unforeseen := h.daemon == p && !h.expected
		h.mu.Unlock()
		if unforeseen {
			h.s.violate("bakeryd of host %d ended by itself, with code %d: %s", h.id, p.cmd.ProcessState.ExitCode(), lastLines(h.log, 3))
		}
	}()
	return nil
}

// up starts bakeryd and waits until it serves.
func (h *host) up(ctx context.Context) error {
	begin := fileSize(h.log)
	if err := h.start(); err != nil {
		return err
	}
	return until(ctx, patience, fmt.Sprintf("host %d serves", h.id), func() bool { return strings.Contains(fileFrom(h.log, begin), "msg=serving") })
}

// ending records that the end of bakeryd is expected, and why.
func (h *host) ending() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expected = true
}

// end ends bakeryd with a signal, and returns its exit code.
func (h *host) end(ctx context.Context, signal syscall.Signal) (int, error) {
	h.ending()
	if err := h.daemon.cmd.Process.Signal(signal); err != nil {
		return 0, err
	}
	return h.daemon.code(ctx, patience)
}

// kill kills bakeryd.
func (h *host) kill(ctx context.Context) error {
	_, err := h.end(ctx, unix.SIGKILL)
	return err
}

// launch starts a client on the host, unless the host is paused or off.
func (h *host) launch(log string, user *syscall.Credential, argv ...string) (*process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.off {
		return nil, errOff
	}
	return start(h.dir, filepath.Join(h.dir, log), user, argv...)
}

// errOff is returned when the host is paused or off.
var errOff = errors.New("the host is off")

func (h *host) setOff(off bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.off = off
}

// freeze stops all processes of the host, as a hypervisor does, and thaw continues them.
func (h *host) freeze() (since time.Duration) {
	h.setOff(true)
	since = clock.Boottime.Now()
	h.s.paused(h, pause{from: since})
	signalAll(h.dir, unix.SIGSTOP)
	return since
}

func (h *host) thaw(since time.Duration) {
	signalAll(h.dir, unix.SIGCONT)
	h.s.paused(h, pause{from: since, to: clock.Boottime.Now()})
	h.setOff(false)
}

// powerOff kills all of the host's processes at one moment. A write in flight may keep a process;
// afterwards must end that write.
func (h *host) powerOff(ctx context.Context, afterwards func()) error {
	h.ending()
	h.setOff(true)
	since := clock.Boottime.Now()
	h.s.paused(h, pause{from: since})
	signalAll(h.dir, unix.SIGSTOP)
	signalAll(h.dir, unix.SIGKILL)
	afterwards()
	if err := until(ctx, patience, fmt.Sprintf("nothing runs on host %d", h.id), func() bool { return len(processesIn(h.dir, false)) == 0 }); err != nil {
		return err
	}
	h.s.paused(h, pause{from: since, to: clock.Boottime.Now()})
	h.s.store.with(func(j *judge) { j.dead(h.id) })
	return nil
}

// reboot empties the runtime directory, changes the boot id, and starts the clients and bakeryd.
func (h *host) reboot(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(h.run()), os.Mkdir(h.run(), 0o755), h.newBoot()); err != nil {
		return err
	}
	h.setOff(false)
	if err := h.up(ctx); err != nil {
		return err
	}
	return h.startWorkers()
}

// well waits until a client of the host gets a lock that no other host uses.
func (h *host) well(ctx context.Context) error {
	var last error
	err := until(ctx, patience, fmt.Sprintf("host %d can take a lock again", h.id), func() bool {
		var hold *client.Hold
		if hold, last = h.client().Lock(ctx, fmt.Sprintf("well-%d", h.id), client.Options{Timeout: 5 * time.Second}); last != nil {
			return false
		}
		last = hold.Unlock()
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w: %s", err, last, lastLines(h.log, 3))
	}
	return nil
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func fileFrom(path string, begin int64) string {
	b, _ := os.ReadFile(path)
	return string(b[min(begin, int64(len(b))):])
}

func lastLines(path string, n int) string {
	b, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
