//go:build lab

// Command guest is /init of a machine of the lab, and what carries out the lab's requests there.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/test/lab"
)

func main() {
	if os.Getpid() == 1 {
		initialise()
	}
	fmt.Println("guest:", serve())
	os.Exit(1)
}

// initialise is process 1: it starts the rest, buries orphans, and never returns.
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
	for _, module := range []string{"virtio_pci", "virtio_console"} {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			die("modprobe", module, string(out), err)
		}
	}
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

func die(why ...any) {
	fmt.Println(append([]any{"guest:"}, why...)...)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// server carries out requests.
type server struct {
	mu       sync.Mutex // guards what follows
	port     *os.File
	programs map[int]*program
}

type program struct {
	cmd   *exec.Cmd
	stdin *os.File
}

// serve returns when it cannot go on.
func serve() error {
	port, err := openPort()
	if err != nil {
		return err
	}
	s := &server{port: port, programs: make(map[int]*program)}
	s.reply(lab.Reply{Up: true})
	requests := json.NewDecoder(port)
	for {
		var r lab.Request
		if err := requests.Decode(&r); err != nil {
			return err
		}
		if err := s.do(r); err != nil {
			s.reply(lab.Reply{ID: r.ID, Problem: err.Error()})
		}
	}
}

func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == lab.Port {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(name)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no port %q among %q", lab.Port, names)
}

func (s *server) reply(r lab.Reply) {
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

func (s *server) do(r lab.Request) error {
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
	if _, err := p.stdin.WriteString(r.Input); err != nil && !errors.Is(err, unix.EPIPE) { // it has ended
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
		_ = cmd.Wait() // what it returns is in cmd.ProcessState as well
		s.reply(lab.Reply{ID: id, Ended: true, Code: cmd.ProcessState.ExitCode()})
	}()
	return nil
}

// follow passes on what a program, and what it has started, print.
func (s *server) follow(id int, output *os.File) {
	defer output.Close()
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.reply(lab.Reply{ID: id, Out: line})
		}
		if err != nil {
			s.reply(lab.Reply{ID: id, Silent: true})
			return
		}
	}
}
