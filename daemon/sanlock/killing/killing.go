// Package killing stops the clients of sanlock's socket: those of a lockspace that ends, in the order of sanlock, and
// those that a previous bakeryd left beyond the end of its lease. It knows the rules, processes and the state file, and
// no lock.
package killing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bakeryd/bakeryd/daemon/retry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// Plan is when the clients of a lockspace are stopped, on one clock: first their killpath runs, or they get SIGTERM if
// they have none.
type Plan struct {
	Term time.Duration // those with a killpath get SIGTERM
	Kill time.Duration // all get SIGKILL

	Now bool // without a killpath: sanlock sends SIGKILL at once if a client removes the lockspace
}

// Until returns the plan for the time that is left of a lease: half of it is for the killpath, the rest for SIGTERM.
func Until(deadline, now time.Duration) Plan {
	return Plan{Term: now + (deadline-now)/2, Kill: deadline}
}

// Action is what is done to a client.
type Action uint8

const (
	Killpath Action = iota
	Terminate
	Kill
)

// Next returns what is done to a client at the time now. A killpath runs once, also if the time for it is over: a
// client that must not get SIGKILL may end what it protects by that.
func (p Plan) Next(c *registry.Client, now time.Duration) Action {
	a := Terminate
	switch {
	case now >= p.Kill:
		a = Kill
	case now < p.Term && c.KillPath != "":
		return Killpath
	}
	switch {
	case a == Kill && c.Restrict&wire.RestrictSigkill != 0:
		return Terminate
	case a == Terminate && c.Restrict&wire.RestrictSigterm != 0:
		return Kill
	}
	return a
}

// Again is the pause after which a client is signalled again, as sanlock's.
const Again = time.Second

// Do does one thing to stop a client, and logs it unless it is done again. The log may block: nothing waits for it.
func Do(log *slog.Logger, c *registry.Client, lockspace string, a Action, again bool) {
	var err error
	if a == Killpath {
		err = run(log, c)
	} else {
		err = c.Process.Signal(a.signal())
	}
	if again && err == nil {
		return
	}
	attrs := []any{"lockspace", lockspace, "pid", c.Process.PID, "client", c.Name}
	message := "stopping a client of the sanlock socket"
	if a == Killpath {
		message, attrs = "running the killpath of a client of the sanlock socket", append(attrs, "path", c.KillPath, "args", c.KillArgs)
	} else {
		attrs = append(attrs, "signal", a.signal().String())
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	go log.Warn(message, attrs...)
}

func (a Action) signal() syscall.Signal {
	if a == Kill {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

// run starts the killpath of a client, with the rights of that client.
func run(log *slog.Logger, c *registry.Client) error {
	cmd := exec.Command(c.KillPath, Args(c.KillArgs)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 && c.UID != 0 {
		groups := make([]uint32, len(c.Groups))
		for i, g := range c.Groups {
			groups[i] = uint32(g)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.GID), Groups: groups}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("killpath: %w", err)
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			log.Warn("the killpath of a client of the sanlock socket failed", "path", c.KillPath, "pid", c.Process.PID, "err", err)
		}
	}()
	return nil
}

// Args splits the arguments of a killpath as sanlock does: at spaces, unless a backslash is before one.
func Args(text string) (args []string) {
	var arg strings.Builder
	end := func() {
		if arg.Len() > 0 {
			args = append(args, arg.String())
			arg.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\\' && i+1 < len(text) && (text[i+1] == '\\' || isSpace(text[i+1])):
			i++
			arg.WriteByte(text[i])
		case b == '\\' || b < ' ' && !isSpace(b) || b >= 0x7f:
			end()
			return args // sanlock reads no further
		case isSpace(b):
			end()
		default:
			arg.WriteByte(b)
		}
	}
	end()
	return args
}

func isSpace(b byte) bool { return strings.IndexByte(" \t\n\v\f\r", b) >= 0 }

// Abandon stops the clients that have resources by a state file: that of a bakeryd whose lease is over, so other hosts
// may have the resources. It blocks until those have ended that may get SIGKILL. If something is left that only an operator
// can end, a client that must not get it or a persistent resource, Abandon returns a function that reports whether it still
// is; else it removes the file.
func Abandon(ctx context.Context, log *slog.Logger, path string) (left func() bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var reg *registry.Registry
	if err == nil {
		reg, err = registry.Load(text)
	}
	if err != nil {
		log.Error("the state of the sanlock socket is not usable: its clients must stop, and start again", "path", path, "err", err)
		return nil, nil
	}
	persistent := false
	for _, res := range reg.Resources {
		if res.Persistent {
			persistent = true
			go log.Error("a persistent resource of the sanlock socket is lost: other hosts may have it", "resource", res.Key().String())
		}
	}
	for ran := map[int]bool{}; ; {
		for _, c := range users(reg) {
			lockspace := reg.Of(c.ID)[0].Lockspace
			if c.KillPath != "" && !ran[c.ID] {
				Do(log, c, lockspace, Killpath, false)
			}
			Do(log, c, lockspace, Plan{}.Next(c, 0), ran[c.ID])
			ran[c.ID] = true
		}
		if !slices.ContainsFunc(users(reg), mayKill) {
			break
		}
		if err := retry.Pause(ctx, Again); err != nil {
			return nil, err
		}
	}
	left = func() bool { return persistent || len(users(reg)) > 0 }
	if left() {
		return left, nil
	}
	return nil, os.Remove(path)
}

// users returns the clients that have resources, and have not ended.
func users(reg *registry.Registry) []*registry.Client {
	return slices.DeleteFunc(reg.All(), func(c *registry.Client) bool { return len(reg.Of(c.ID)) == 0 || !c.Process.Alive() })
}

func mayKill(c *registry.Client) bool { return c.Restrict&wire.RestrictSigkill == 0 }
