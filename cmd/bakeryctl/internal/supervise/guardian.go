package supervise

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/cgroup"
)

// A wrapper that is a host itself (--device) has no bakeryd that stops the command if the wrapper
// is killed. The parent-death signal (PR_SET_PDEATHSIG) reaches only the command itself, and is
// lost if the command has changed its user. Therefore the cgroup of such a command has a guardian:
// this program again, in its own session. It kills all processes in the cgroup when the pipe from
// the wrapper is closed.

// AsGuardian is the argv[0] of a guardian. Its argument is the directory of the cgroup.
const AsGuardian = "bakeryctl-guard"

// guardian is the wrapper's side. A nil guardian means there is none.
type guardian struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser // at end of file the guardian kills, unless dismissed
}

func startGuardian(g *cgroup.Group) (*guardian, error) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{AsGuardian, g.Dir}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return &guardian{cmd, pipe}, nil
}

func (g *guardian) is(pid int) bool { return g != nil && pid == g.cmd.Process.Pid }

// dismiss ends the guardian. The command has ended, and the processes that it left do not hold the
// lock.
func (g *guardian) dismiss() {
	if g == nil {
		return
	}
	_, _ = g.pipe.Write([]byte{0}) // fails if the guardian has ended
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
	for pause := briefly; g.Populated(); pause = min(2*pause, RecheckInterval) {
		_ = g.Kill() // retried
		time.Sleep(pause)
	}
	g.Remove()
	return cli.ExitLost
}
