package supervise

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
	"github.com/bakeryd/bakeryd/daemon/process"
)

// A wrapper that is a host itself (--device) has no bakeryd that stops the command if the wrapper
// is killed. The signal that the kernel sends then (PR_SET_PDEATHSIG) reaches only the command
// itself, and not even that if it has changed its user. So the cgroup of such a command has a
// guardian: this program once more, in a session of its own, which kills all in the cgroup when the
// pipe from the wrapper ends.

// AsGuardian is the name by which this program is a guardian. Its argument is the directory of the
// cgroup.
const AsGuardian = "bakeryctl-guard"

// guardian is the wrapper's side. A nil guardian is none.
type guardian struct {
	cmd  *exec.Cmd
	pipe *os.File // the guardian kills at its end, unless dismissed
}

// startGuardian starts the guardian of a cgroup.
func startGuardian(g *cgroup.Group) (*guardian, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{AsGuardian, g.Dir}, Stdin: r, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, err
	}
	return &guardian{cmd: cmd, pipe: w}, nil
}

// is reports whether p is the guardian.
func (g *guardian) is(p process.Stat) bool { return g != nil && p.PID == g.cmd.Process.Pid }

// dismiss ends the guardian: the command has ended, and what it has left running does not hold the
// lock.
func (g *guardian) dismiss() {
	if g == nil {
		return
	}
	_, _ = g.pipe.Write([]byte{0}) // it is gone if that fails
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// RunGuardian is the guardian's main function.
func RunGuardian(args []string) int {
	if len(args) != 1 {
		return cli.ExitUsage
	}
	if n, _ := io.ReadFull(os.Stdin, make([]byte, 1)); n == 1 {
		return cli.ExitOK
	}
	g := &cgroup.Group{Dir: args[0]}
	for pause := briefly; g.Populated(); pause = min(2*pause, LookAgain) {
		_ = g.Kill() // tried again
		time.Sleep(pause)
	}
	g.Remove()
	return cli.ExitLost
}
