//go:build integration

package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
)

// TestScript runs the commands as users do. Each script has a lockspace with two hosts: host-a with
// the socket $a, which is bakeryctl's default, and host-b with $b. Their loop devices are $dev_a
// and $dev_b; no host uses $dev. Their state is in $dir_a and $dir_b. Additional commands:
//
//	exitcode N PROGRAM ARGS    runs a program that must exit with N
//	until REGEXP PROGRAM ARGS  repeats a program until it exits with 0 and prints a match
//	notify VAR FILE            listens on a socket whose path is in VAR, and writes the messages to FILE
//	damage RECORD [N...]       flips bits of the superblock, the copy, host N, entry N, or slot LOCK HOST;
//	                           a second time undoes it
func TestScript(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for i, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, []int{512, 4096}[i%2])
			a, b := s.host(1, "--name", "host-a"), s.host(2, "--name", "host-b")
			testscript.Run(t, testscript.Params{
				Files: []string{script},
				Setup: func(env *testscript.Env) error {
					env.Setenv("PATH", filepath.Dir(plain.bakeryctl)+":"+env.Getenv("PATH")+":/usr/sbin:/sbin")
					env.Setenv("BAKERY_SOCKET", a.socket)
					env.Setenv("a", a.socket)
					env.Setenv("b", b.socket)
					env.Setenv("dir_a", a.dir)
					env.Setenv("dir_b", b.dir)
					env.Setenv("dev", s.dev)
					env.Setenv("dev_a", a.dev)
					env.Setenv("dev_b", b.dev)
					return nil
				},
				Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
					"exitcode": scriptExitCode,
					"until":    scriptUntil,
					"notify":   scriptNotify,
					"damage":   s.scriptDamage,
				},
			})
		})
	}
}

// exitCode runs a program and returns its exit code.
func exitCode(ts *testscript.TestScript, argv []string) int {
	err := ts.Exec(argv[0], argv[1:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		ts.Fatalf("%v", err)
	}
	return 0
}

func scriptExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N PROGRAM ARGS")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("%v", err)
	}
	if got := exitCode(ts, args[1:]); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM ARGS")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		ts.Fatalf("%v", err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		code := exitCode(ts, args[1:])
		if code == 0 && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("not within %v; the last exit code was %d", patience, code)
		}
	}
}

func (s *space) scriptDamage(ts *testscript.TestScript, neg bool, args []string) {
	numbers := []int{}
	for _, arg := range args[min(1, len(args)):] {
		n, err := strconv.Atoi(arg)
		if err != nil {
			ts.Fatalf("%v", err)
		}
		numbers = append(numbers, n)
	}
	var at int64
	switch {
	case neg:
		ts.Fatalf("! damage is not supported")
	case len(args) == 1 && args[0] == "superblock":
		at = s.geo.Superblock(0)
	case len(args) == 1 && args[0] == "copy":
		at = s.geo.Superblock(1)
	case len(args) == 2 && args[0] == "host":
		at = s.geo.Host(numbers[0])
	case len(args) == 2 && args[0] == "entry":
		at = s.geo.Entry(numbers[0])
	case len(args) == 3 && args[0] == "slot":
		at = s.geo.Slot(numbers[0], numbers[1])
	default:
		ts.Fatalf("usage: damage superblock|copy|host N|entry N|slot LOCK HOST")
	}
	if err := flip(s.dev, s.geo.Stride, at); err != nil {
		ts.Fatalf("%v", err)
	}
}

// flip flips some bits of the record at an address.
func flip(path string, stride int, at int64) error {
	dev, err := blockdev.Open(path, blockdev.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	buf := blockdev.Alloc(stride)
	if err := dev.Read(buf, at); err != nil {
		return err
	}
	for _, i := range []int{3, 20, 300} {
		buf[i] ^= 0x55
	}
	return dev.Write(buf, at)
}

// scriptNotify listens until the script ends, and writes each message to a file, one per line.
func scriptNotify(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: notify VAR FILE")
	}
	out, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	dir, err := os.MkdirTemp("", "n") // short: socket paths are limited
	ts.Check(err)
	socket := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	ts.Check(err)
	ts.Setenv(args[0], socket)
	written := make(chan error, 1)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err == nil {
				_, err = fmt.Fprintf(out, "%s\n", buf[:n])
			}
			if err != nil {
				written <- err
				return
			}
		}
	}()
	ts.Defer(func() {
		_ = conn.Close() // ends the goroutine
		<-written
		_ = out.Close()
		_ = os.RemoveAll(dir)
	})
}
