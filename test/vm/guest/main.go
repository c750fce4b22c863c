//go:build vm

// Command guest is /init of a machine, and executes the lab's requests there.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/test/vm"
)

func main() {
	if os.Getpid() == 1 {
		initialise()
	}
	fmt.Println("guest:", serve())
	os.Exit(1)
}

// initialise is process 1: it starts the server, reaps orphans, and never returns.
func initialise() {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"cgroup2", "/sys/fs/cgroup"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			die("mount", m[1], err)
		}
	}
	os.Setenv("PATH", "/bin")
	if out, err := exec.Command("busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		die("busybox", string(out), err)
	}
	for _, module := range []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p"} {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			die("modprobe", module, string(out), err)
		}
	}
	name := word("vm.name=")
	if err := identify(name); err != nil {
		die(err)
	}
	if name == vm.Template { // a 9p mount would prevent the snapshot; most machines need these drivers
		if out, err := exec.Command("modprobe", "-a", "virtio_blk", "virtio_scsi", "sd_mod").CombinedOutput(); err != nil {
			die("modprobe", string(out), err)
		}
	} else if err := mountState(); err != nil {
		die(err)
	}
	if root := word("vm.root="); root != "" {
		die("boot from", root, switchRoot(root))
	}
	go offerShell()
	server, err := os.StartProcess("/init", []string{"guest"}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		die(err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == server.Pid || err != nil && err != unix.EINTR {
			die("the server has ended", err)
		}
	}
}

// word returns what follows a prefix on the kernel's command line.
func word(prefix string) string {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		die(err)
	}
	for _, word := range strings.Fields(string(b)) {
		if rest, ok := strings.CutPrefix(word, prefix); ok {
			return rest
		}
	}
	return ""
}

// identify gives the machine its name, and a persistent id.
func identify(name string) error {
	return errors.Join(unix.Sethostname([]byte(name)), os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644),
		os.WriteFile("/etc/machine-id", fmt.Appendf(nil, "%032x\n", name), 0o644))
}

func mountState() error {
	if err := unix.Mount(vm.State, "/var/lib/bakery", "9p", 0, "trans=virtio,version=9p2000.L,cache=none"); err != nil {
		return fmt.Errorf("mount %s: %w", vm.State, err)
	}
	return nil
}

// adopt gives a machine that continues from a snapshot what a boot would give: identity, random
// numbers, the time, and the devices that the template does not have.
func adopt(name string, seed []byte) error {
	if err := errors.Join(identify(name), reseed(seed), setClock(), os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0)); err != nil {
		return err
	}
	if word("vm.root=") != "" {
		return nil
	}
	return mountState()
}

// setClock sets the clock from the RTC, which has continued.
func setClock() error {
	f, err := os.Open("/dev/rtc0")
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := unix.IoctlGetRTCTime(int(f.Fd()))
	if err != nil {
		return err
	}
	seconds := time.Date(int(at.Year)+1900, time.Month(at.Mon+1), int(at.Mday), int(at.Hour), int(at.Min), int(at.Sec), 0, time.UTC).Unix()
	return unix.Settimeofday(&unix.Timeval{Sec: seconds})
}

// reseed seeds the kernel's random numbers.
func reseed(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info := binary.NativeEndian.AppendUint32(nil, uint32(8*len(seed))) // struct rand_pool_info
	info = append(binary.NativeEndian.AppendUint32(info, uint32(len(seed))), seed...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return fmt.Errorf("RNDADDENTROPY: %w", errno)
	}
	return unix.IoctlSetInt(int(f.Fd()), unix.RNDRESEEDCRNG, 0)
}

// switchRoot continues with the systemd of another root filesystem, which has this program as a
// service. It returns only on failure.
func switchRoot(dev string) error {
	if out, err := exec.Command("modprobe", "-a", "virtio_blk", "crc32c_generic", "ext4", "virtio_scsi", "sd_mod", "sg", "softdog", "dm_mod").CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe: %s: %w", out, err)
	}
	for _, err := os.Stat(dev); err != nil; _, err = os.Stat(dev) {
		time.Sleep(10 * time.Millisecond)
	}
	const root = "/root"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dev, root, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := unix.Mount(dir, root+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := errors.Join(unix.Chdir(root), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/")); err != nil {
		return err
	}
	if err := identify(word("vm.name=")); err != nil {
		return err
	}
	return unix.Exec("/lib/systemd/systemd", []string{"/lib/systemd/systemd"}, []string{"PATH=/usr/sbin:/usr/bin", "TERM=dumb"})
}

// offerShell offers a shell on the second serial port.
func offerShell() {
	for {
		port, err := os.OpenFile("/dev/ttyS1", os.O_RDWR, 0)
		if err != nil {
			fmt.Println("guest:", err)
			return
		}
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-i"}, &os.ProcAttr{Dir: "/run", Env: os.Environ(),
			Files: []*os.File{port, port, port}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true}})
		port.Close()
		if err != nil {
			fmt.Println("guest:", err)
			return
		}
		for unix.Kill(p.Pid, 0) == nil { // process 1 reaps it
			time.Sleep(time.Second)
		}
	}
}

func die(why ...any) {
	fmt.Println(append([]any{"guest:"}, why...)...)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// server executes requests.
type server struct {
	mu       sync.Mutex // guards the fields below
	port     *os.File
	programs map[int]*program
}

type program struct {
	cmd   *exec.Cmd
	stdin *os.File
}

// serve returns when it cannot continue.
func serve() error {
	port, err := openPort()
	if err != nil {
		return err
	}
	s := &server{port: port, programs: make(map[int]*program)}
	if _, err := port.WriteString("\n"); err != nil { // after a line that a reset cut short
		return err
	}
	s.reply(vm.Reply{Up: true})
	requests := json.NewDecoder(port)
	for {
		var r vm.Request
		if err := requests.Decode(&r); err != nil {
			return err
		}
		if err := s.do(r); err != nil {
			s.reply(vm.Reply{ID: r.ID, Problem: err.Error()})
		}
	}
}

func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == vm.Port {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(name)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no port %q among %q", vm.Port, names)
}

func (s *server) reply(r vm.Reply) {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.port.Write(append(b, '\n')); err != nil {
		fmt.Println("guest:", err)
	}
}

func (s *server) do(r vm.Request) error {
	if r.Name != "" {
		if err := adopt(r.Name, r.Seed); err != nil {
			die("adopt", r.Name, err)
		}
		s.reply(vm.Reply{Up: true})
		return nil
	}
	if len(r.Argv) > 0 {
		return s.start(r.ID, r.Argv)
	}
	s.mu.Lock()
	p := s.programs[r.ID]
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("no program %d", r.ID)
	}
	if r.Signal != 0 {
		return p.cmd.Process.Signal(syscall.Signal(r.Signal))
	}
	if _, err := p.stdin.WriteString(r.Input); err != nil && !errors.Is(err, unix.EPIPE) { // the program has ended
		return err
	}
	return nil
}

func (s *server) start(id int, argv []string) error {
	stdin, input, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	output, stdout, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdout.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/run", stdin, stdout, stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		input.Close()
		output.Close()
		return err
	}
	s.mu.Lock()
	s.programs[id] = &program{cmd, input}
	s.mu.Unlock()
	go s.follow(id, output)
	go func() {
		_ = cmd.Wait() // cmd.ProcessState has the result, too
		s.reply(vm.Reply{ID: id, Ended: true, Code: cmd.ProcessState.ExitCode()})
	}()
	return nil
}

// follow sends the output of a program and its children.
func (s *server) follow(id int, output *os.File) {
	defer output.Close()
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.reply(vm.Reply{ID: id, Out: line})
		}
		if err != nil {
			s.reply(vm.Reply{ID: id, Silent: true})
			return
		}
	}
}
