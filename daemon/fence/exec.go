package fence

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// execAgent fences by an external command, told as fence-agents are: by lines on its standard input.
type execAgent struct {
	command string
}

func newExec(cfg Config) (*execAgent, error) {
	if strings.TrimSpace(cfg.Command) == "" || strings.ContainsRune(cfg.Command, 0) {
		return nil, fmt.Errorf("%w: agent exec without a command", ErrConfig)
	}
	return &execAgent{command: cfg.Command}, nil
}

// Register implements Agent. There is nothing to do.
func (a *execAgent) Register(ctx context.Context) error { return ctx.Err() }

// Unregister implements Agent. There is nothing to do.
func (a *execAgent) Unregister(ctx context.Context) error { return ctx.Err() }

// String implements Agent. The command line may hold a password.
func (a *execAgent) String() string { return "exec" }

// ValidName checks a host name that a fence command is to be given: ASCII letters, digits, '.', '_', ':' and '-', not
// at the beginning. A name is chosen by its host; made of these it is one line, one word, no option, and no shell
// code, wherever a script puts it. It returns ErrTarget.
func ValidName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it has no name", ErrTarget)
	}
	for i, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':':
		case c == '-' && i > 0:
		default:
			return fmt.Errorf("%w: name %q, want letters, digits, '.', '_', ':' and '-' only", ErrTarget, name)
		}
	}
	return nil
}

const (
	outputKept  = 4 << 10 // bytes of the command's output, its last
	outputLines = 5       // told in an error, of 200 bytes at most

	// outputWait is how long the output of what left the process group is waited for after the command ended.
	outputWait = time.Second

	// killWait is how long a killed command is waited for; in the middle of IO on a hung device it does not die.
	killWait = 2 * outputWait
)

// Fence implements Agent. The command has confirmed by exit 0 and before ctx's end; whatever it left running in its
// process group is killed.
func (a *execAgent) Fence(ctx context.Context, t Target) error {
	if err := ValidName(t.Name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	out := &tail{max: outputKept}
	cmd := exec.Command("/bin/sh", "-c", a.command) // not CommandContext: the whole group is killed, below
	cmd.Env = environment(t)
	cmd.Stdin = strings.NewReader(input(t))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = outputWait
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("fence %s: run command: %w", t, err)
	}
	done := make(chan error, 1)
	go func() { done <- waitGroup(ctx, cmd) }()
	select {
	case err := <-done:
		return a.result(t, cmd.ProcessState, err, out)
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return a.result(t, cmd.ProcessState, err, out)
	case <-time.After(killWait):
		return fmt.Errorf("fence %s: %w: command killed, but the kernel still holds it: %w%s", t, ErrUnconfirmed, ctx.Err(), out)
	}
}

func (a *execAgent) result(t Target, state *os.ProcessState, err error, out *tail) error {
	switch {
	case err != nil:
		return fmt.Errorf("fence %s: %w: command killed: %w%s", t, ErrUnconfirmed, err, out)
	case state == nil:
		return fmt.Errorf("fence %s: %w: how the command ended is not known%s", t, ErrUnconfirmed, out)
	case !state.Success():
		return fmt.Errorf("fence %s: %w: command ended with %s%s", t, ErrUnconfirmed, state, out)
	}
	return nil
}

// waitGroup waits for the end of a command that leads a process group, and kills the group then, or when ctx ends, of
// which it returns the error. The group is killed before its leader is reaped: until then its number is nobody else's.
func waitGroup(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			continue
		}
	}()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // nobody is left in it, or all are killed
	<-ended
	_ = cmd.Wait() // its error is in the process state, or is that a stray process keeps the output open
	return err
}

// environment is the own one, without what is between this process and systemd, and the target.
func environment(t Target) []string {
	own := slices.DeleteFunc(os.Environ(), func(s string) bool {
		for _, name := range []string{"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "BAKERY_FENCE_"} {
			if strings.HasPrefix(s, name) {
				return true
			}
		}
		return false
	})
	return append(own,
		"BAKERY_FENCE_ACTION=off",
		"BAKERY_FENCE_HOST="+t.Name,
		fmt.Sprintf("BAKERY_FENCE_HOST_ID=%d", t.Host),
		fmt.Sprintf("BAKERY_FENCE_INCARNATION=%016x", t.Incarnation))
}

// input is what fence-agents read, and what they pass over as unknown.
func input(t Target) string {
	return fmt.Sprintf("action=off\nplug=%[1]s\nnodename=%[1]s\nport=%[1]s\nhost_id=%[2]d\nincarnation=%016[3]x\n",
		t.Name, t.Host, t.Incarnation)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards kept: after outputWait the command's output may still be copied
	kept []byte
	max  int
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p[max(0, len(p)-w.max):]...)
	if over := len(w.kept) - w.max; over > 0 {
		w.kept = slices.Delete(w.kept, 0, over)
	}
	return len(p), nil
}

// String is the last lines, in one and fit for a log.
func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := bytes.FieldsFunc(w.kept, func(r rune) bool { return r == '\n' || r == '\r' })
	lines = lines[max(0, len(lines)-outputLines):]
	var b strings.Builder
	for i, line := range lines {
		b.WriteString(map[bool]string{true: ": ", false: " | "}[i == 0])
		b.WriteString(strings.Map(printable, strings.ToValidUTF8(string(line[:min(len(line), 200)]), "?")))
	}
	return b.String()
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
