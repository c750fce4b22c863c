//go:build integration

package integration

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestScript runs the commands as people do, each script on a lockspace of its
// own with two hosts: host-a and host-b, whose sockets are $a, which is the one
// that bakeryctl uses if not told otherwise, and $b. Their loop devices are
// $dev_a and $dev_b; $dev is one that no host uses. $dir_a and $dir_b are where they
// keep their state. What is added to the language of testscript:
//
//	exitcode N PROGRAM ARGS    runs a program that must exit with N
//	until REGEXP PROGRAM ARGS  runs a program, again and again, until it exits with 0 and prints that
//	notify VAR FILE            listens, as systemd does, on a socket whose path is set as VAR; what is told goes to a file
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
				},
			})
		})
	}
}

// exitCode is that of a program which a script runs.
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
