package fence

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// execAgent fences by an external command. Like fence-agents, it reads its input as lines on
// stdin.
type execAgent string

// Register implements Agent. It has no effect.
func (a execAgent) Register(ctx context.Context) error { return ctx.Err() }

// Unregister implements Agent. It has no effect.
func (a execAgent) Unregister(ctx context.Context) error { return ctx.Err() }

// String implements Agent. The command line may hold a password.
func (a execAgent) String() string { return "exec" }

// ValidName checks a host name for a fence command: ASCII letters, digits, '.', '_', ':' and '-',
// not at the beginning. A host chooses its own name. Such a name is one line, one word, no
// option, and no shell code, wherever a script puts it. ValidName returns ErrTarget.
func ValidName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it has no name", ErrTarget)
	}
	if !validName.MatchString(name) {
		return fmt.Errorf("%w: name %q, want letters, digits, '.', '_', ':' and '-' only", ErrTarget, name)
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9._:][A-Za-z0-9._:-]*$`)

const (
	outputKept  = 4 << 10 // bytes kept from the end of the command's output
	outputLines = 5       // lines in an error, of 200 bytes at most

	// outputWait bounds the wait for output of processes outside the group after the command
	// ended.
	outputWait = time.Second

	// killWait bounds the wait for a killed command. During IO on a hung device a process does
	// not die.
	killWait = 2 * outputWait
)

// Fence implements Agent. Exit status 0 before ctx ends confirms the fencing. Processes that the
// command left in its process group are killed.
func (a execAgent) Fence(ctx context.Context, t Target) error {
	if err := cmp.Or(ValidName(t.Name), ctx.Err()); err != nil {
		return err
	}
	out := &tail{max: outputKept}
	cmd := exec.Command("/bin/sh", "-c", string(a)) // not CommandContext: the whole group is killed, below
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
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(killWait):
			return fmt.Errorf("fence %s: %w: command killed, but the kernel still holds it: %w%s", t, ErrUnconfirmed, ctx.Err(), out)
		}
	}
	switch state := cmd.ProcessState; {
	case err != nil:
		return fmt.Errorf("fence %s: %w: command killed: %w%s", t, ErrUnconfirmed, err, out)
	case state == nil:
		return fmt.Errorf("fence %s: %w: the result of the command is unknown%s", t, ErrUnconfirmed, out)
	case !state.Success():
		return fmt.Errorf("fence %s: %w: command ended with %s%s", t, ErrUnconfirmed, state, out)
	}
	return nil
}

// waitGroup waits for the end of a command that leads a process group, then kills the group. If
// ctx ends first, it kills the group and returns ctx's error. It reaps the leader last, because
// until then no other process can have its number.
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
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // the group is empty, or all are killed
	<-ended
	_ = cmd.Wait() // the error is in the process state, or is that a stray process keeps the output open
	return err
}

// environment returns the own environment without systemd's variables, and with the target.
func environment(t Target) []string {
	own := slices.DeleteFunc(os.Environ(), func(s string) bool {
		begins := func(with string) bool { return strings.HasPrefix(s, with) }
		return slices.ContainsFunc([]string{"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "BAKERY_FENCE_"}, begins)
	})
	return append(own,
		"BAKERY_FENCE_ACTION=off",
		"BAKERY_FENCE_HOST="+t.Name,
		fmt.Sprintf("BAKERY_FENCE_HOST_ID=%d", t.Host),
		fmt.Sprintf("BAKERY_FENCE_INCARNATION=%v", t.Incarnation))
}

// input returns the lines that fence-agents read, and others that they ignore as unknown.
func input(t Target) string {
	return fmt.Sprintf("action=off\nplug=%[1]s\nnodename=%[1]s\nport=%[1]s\nhost_id=%[2]d\nincarnation=%[3]v\n",
		t.Name, t.Host, t.Incarnation)
}

// tail keeps the end of the written text.
type tail struct {
	mu   sync.Mutex // guards kept: the command's output may still be copied after outputWait
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

// String returns the last lines, as one line that is fit for a log.
func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := bytes.FieldsFunc(w.kept, func(r rune) bool { return r == '\n' || r == '\r' })
	lines = lines[max(0, len(lines)-outputLines):]
	text, between := "", ": "
	for _, line := range lines {
		text += between + strings.Map(printable, strings.ToValidUTF8(string(line[:min(len(line), 200)]), "?"))
		between = " | "
	}
	return text
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
