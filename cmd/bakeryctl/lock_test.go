package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/layout"
)

func TestLockExitCodes(t *testing.T) {
	refused := func(code string) func(*exchange) {
		return func(x *exchange) { x.Send(`{"event":"refused","code":%q,"message":"no","hint":"maybe"}`, code) }
	}
	failed := func(code string) func(*exchange) {
		return func(x *exchange) { x.Refuse(code, "no", "maybe") }
	}
	const no = "bakeryctl: lock \"x\": no\nhint: maybe\n"
	tests := []struct {
		name   string
		script func(*exchange)
		args   []string
		code   int
		stderr string
	}{
		{"success", holding, []string{"x", "--", "true"}, 0, ""},
		{"without dashes", holding, []string{"x", "sh", "-c", "exit 3"}, 3, ""},
		{"dashes first", holding, []string{"--", "x", "sh", "-c", "exit 3"}, 3, ""},
		{"flags before and after", holding, []string{"-n", "x", "--", "sh", "-c", "exit 7", "-n"}, 7, ""},
		{"killed", holding, []string{"x", "--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{"the greatest code", holding, []string{"x", "--", "sh", "-c", "exit 255"}, 255, ""},
		{"terminated", holding, []string{"x", "--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		{"busy", refused("busy"), []string{"-n", "x", "--", "true"}, 1, "bakeryctl: \"x\" is not free\n"},
		{"timeout", refused("timeout"), []string{"-w", "0.2", "x", "--", "true"}, 1, "bakeryctl: gave up waiting for \"x\" after 0.2 s\n"},
		{"busy is well", refused("busy"), []string{"-n", "-E", "0", "x", "--", "true"}, 0, "bakeryctl: \"x\" is not free\n"},
		{"busy is 255", refused("busy"), []string{"-nE255", "x", "--", "true"}, 255, "bakeryctl: \"x\" is not free\n"},
		{"busy, quiet", refused("busy"), []string{"-q", "-n", "x", "--", "true"}, 1, ""},
		{"timeout, quiet", refused("timeout"), []string{"--quiet", "-w", "0.2", "-E0", "x", "--", "true"}, 0, ""},
		{"unavailable, quiet", failed("unavailable"), []string{"-q", "x", "--", "true"}, 69, no},
		{"unavailable", failed("unavailable"), []string{"x", "--", "true"}, 69, no},
		{"gone while waiting", refused("unavailable"), []string{"x", "--", "true"}, 69, no},
		{"permits", failed("permits"), []string{"x", "--", "true"}, 69, no},
		{"device", failed("device"), []string{"x", "--", "true"}, 66, no},
		{"full", failed("full"), []string{"x", "--", "true"}, 66, no},
		{"invalid", failed("invalid"), []string{"x", "--", "true"}, 64, no},
		{"garbage", func(x *exchange) { x.Send("garbage") }, []string{"x", "--", "true"}, 69,
			"bakeryctl: lock \"x\": not an answer of bakeryd: event \"garbage\": invalid character 'g' looking for beginning of value\n"},
		{"lease over immediately", func(x *exchange) {
			x.Grant(0)
			<-x.Gone
		}, []string{"x", "--", "sleep", "1000"}, 75, "?the lease ended without a renewal\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := serve(t, test.script)
			// The second is run by the complete program.
			for _, before := range [][]string{{"lock", "--socket", b.Socket}, {"--socket", b.Socket, "lock"}} {
				p := begin(t, slices.Concat(before, test.args)...)
				p.exits(test.code)
				if want, part := strings.CutPrefix(test.stderr, "?"); part && strings.Contains(p.messages(), want) {
					continue
				}
				p.printed(t, "", test.stderr)
			}
		})
	}
}

func TestLock_InvalidArguments_NoRequest(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
	const see = "\nhint: run bakeryctl lock --help\n"
	const usage = "\nhint: usage: bakeryctl lock [flags] NAME -- COMMAND [ARG...]\n"
	const executable = "\nhint: COMMAND must be a file that this user may execute: see ls -l\n"
	tests := []struct {
		args   []string
		code   int
		stderr string
	}{
		{nil, 64, "bakeryctl: lock: no lock NAME given" + usage},
		{[]string{"x"}, 64, "bakeryctl: lock: no COMMAND given to run under \"x\"" + usage},
		{[]string{"x", "--"}, 64, "bakeryctl: lock: no COMMAND given to run under \"x\"" + usage},
		{[]string{"x", "-n", "--", "true"}, 64, "bakeryctl: flag -n after the name of the lock\n" +
			"hint: put flags before NAME, and -- before a command that starts with a dash\n"},
		{[]string{"", "true"}, 64, "bakeryctl: lock name of 0 bytes, want 1 to 128: value not allowed" + see},
		{[]string{strings.Repeat("n", 129), "true"}, 64, "bakeryctl: lock name of 129 bytes, want 1 to 128: value not allowed" + see},
		{[]string{"a\xffb", "true"}, 64, `bakeryctl: lock name "a\xffb", want UTF-8: value not allowed` + see},
		{[]string{"a\nb", "true"}, 64, `bakeryctl: lock name "a\nb", want no control characters, found U+000A at byte 1: value not allowed` + see},
		{[]string{"a\x7fb", "true"}, 64, `bakeryctl: lock name "a\x7fb", want no control characters, found U+007F at byte 1: value not allowed` + see},
		{[]string{"-s", "-x", "x", "true"}, 64, "bakeryctl: --shared and --exclusive exclude each other" + see},
		{[]string{"-E", "256", "x", "true"}, 64, "bakeryctl: -E, --conflict-exit-code \"256\": want a whole number from 0 to 255" + see},
		{[]string{"-w", "-1", "x", "true"}, 64, "bakeryctl: -w, --timeout \"-1\": " +
			"want seconds from 0, such as 1.5, or a time with its unit, such as 300ms or 5m" + see},
		{[]string{"-y", "x", "true"}, 64, "bakeryctl: unknown flag -y" + see},
		{[]string{"--create", "x", "true"}, 64, "bakeryctl: --create requires --device" + see},
		{[]string{"--device", "", "x", "true"}, 64, "bakeryctl: --device is empty, want a path" + see},
		{[]string{"--device", "d", "--socket", "s", "x", "true"}, 64, "bakeryctl: --device and --socket exclude each other: with --device no bakeryd is asked" + see},
		{[]string{"x", "no-such-command"}, 127, "bakeryctl: no-such-command: command not found\nhint: check the name of COMMAND, or give its path: no directory of PATH has it\n"},
		{[]string{"x", "/no/such"}, 127, "bakeryctl: /no/such: command not found\nhint: check the path of COMMAND\n"},
		{[]string{"x", ""}, 127, "bakeryctl: \"\": command not found\nhint: check the path of COMMAND\n"},
		{[]string{"x", plain}, 126, "bakeryctl: " + plain + ": cannot be run: permission denied" + executable},
		{[]string{"x", dir}, 126, "bakeryctl: " + dir + ": cannot be run: is a directory" + executable},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			b := serve(t, func(x *exchange) { t.Error("the lock was requested") })
			p := begin(t, append([]string{"lock", "--socket", b.Socket}, test.args...)...)
			p.exits(test.code)
			p.printed(t, "", test.stderr)
		})
	}
}

func TestLockUnreachable(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	p := begin(t, "lock", "--socket", socket, "x", "--", "true")
	p.exits(cli.ExitUnavailable)
	p.printed(t, "", "bakeryctl: lock \"x\": bakeryd is unreachable: dial unix "+socket+": connect: no such file or directory\n"+
		"hint: is bakeryd running? See systemctl status bakeryd; --socket names another socket\n")
}

func TestLock_Flags_DetermineTheRequest(t *testing.T) {
	tests := []struct {
		flags []string
		want  wanted
	}{
		{nil, wanted{Witness: true}},
		{[]string{"-x"}, wanted{Witness: true}},
		{[]string{"--shared"}, wanted{Mode: layout.Shared, Witness: true}},
		{[]string{"-n"}, wanted{NonBlock: true, Witness: true}},
		{[]string{"-w", "1.5"}, wanted{TimeoutMS: 1500, Witness: true}},
		{[]string{"-w", "2m"}, wanted{TimeoutMS: 120_000, Witness: true}},
		{[]string{"-w", "0"}, wanted{NonBlock: true, Witness: true}},
		{[]string{"--close"}, wanted{}},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.flags, " "), func(t *testing.T) {
			asked := make(chan wanted, 1)
			b := serve(t, func(x *exchange) {
				asked <- x.Request
				x.Grant(time.Minute)
				<-x.Gone
			})
			args := append([]string{"lock", "--socket", b.Socket}, test.flags...)
			p := begin(t, append(args, "x", "--", "sh", "-c", "exit 0", "a b")...)
			p.exits(0)
			p.printed(t, "", "")
			test.want.Confirm = true
			test.want.Name, test.want.PID, test.want.Command = "x", p.cmd.Process.Pid, "sh -c exit 0 a b"
			got := <-asked
			got.Session = "" // random
			require.Equal(t, test.want, got)
		})
	}
}

func TestLock_Command_GetsTheEnvironment(t *testing.T) {
	b := serve(t, holding)
	p := begin(t, "lock", "--socket", b.Socket, "x y", "--", "sh", "-c", `echo "$BAKERY_LOCK,$BAKERY_TOKEN,$BAKERY_HOST_ID"`)
	p.exits(0)
	p.printed(t, "x y,"+token.String()+",3\n", "")
}

func TestLock_Command_GetsStandardStreams(t *testing.T) {
	b := serve(t, holding)
	input := make([]byte, 1<<20)
	_, _ = rand.Read(input) // never fails
	p := prepare(t, "lock", "--socket", b.Socket, "x", "--", "sh", "-c", "cat; printf 'e\\0r' >&2")
	p.cmd.Stdin = bytes.NewReader(input)
	p.start()
	p.exits(0)
	require.True(t, p.content(p.stdout) == string(input), "standard output differs from the input")
	require.Equal(t, "e\x00r", p.messages())
}

func TestLock_Command_RunsAsByExec(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"shebangless": "echo run by sh: $1\n",
		"orphan":      "#!/no/such/interpreter\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	tests := []struct {
		command        []string
		code           int
		stdout, stderr string
	}{
		{[]string{dir + "/shebangless", "a"}, 0, "run by sh: a\n", ""},
		{[]string{"shebangless", "a"}, 0, "run by sh: a\n", ""},
		{[]string{"orphan"}, 126, "", "bakeryctl: orphan: cannot be run: its interpreter was not found\nhint: check the first line of the script, or install the interpreter\n"},
	}
	for _, test := range tests {
		b := serve(t, holding)
		p := prepare(t, append([]string{"lock", "--socket", b.Socket, "x"}, test.command...)...)
		p.cmd.Env = append(p.cmd.Env, "PATH="+dir+":/bin:/usr/bin")
		p.start()
		require.Equal(t, test.code, p.wait(), test.command)
		p.printed(t, test.stdout, test.stderr)
	}
}

func TestLock_WarnedWhileItWaits_PrintsTheWarning(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"lock", "x", "--", "true"}, {"hold", "x"}} {
		b := serve(t, func(x *exchange) {
			x.Wait(1, time.Minute)
			x.Send(`{"event":"warning","message":"process 5 holds \"x\":\nit waits"}`)
			<-x.Gone
		})
		p := begin(t, slices.Concat(args[:1], []string{"--socket", b.Socket}, args[1:])...)
		eventually(t, "the warning", func() bool { return p.messages() != "" })
		p.signal(syscall.SIGTERM)
		p.exits(cli.ExitSignal + int(syscall.SIGTERM))
		p.printed(t, "", `bakeryctl: warning: "process 5 holds \"x\":\nit waits"`+"\n")
	}
}

// blocked sets what bakeryd answers to the question for a blocker.
func blocked(b *fakeBakeryd, words func() string) {
	b.Answer("GET /v1/blocker", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"name": r.URL.Query().Get("name"), "text": words()})
	})
}

const heldByDB1 = `held by db1 (host 1), pid 2234 "sleep 300", for 38 s`

func TestLock_NoTerminal_PrintsTheWaitOnce(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"lock", "a b", "--", "true"}, {"hold", "a b"}} {
		moved, granted := make(chan struct{}), make(chan struct{})
		b := serve(t, func(x *exchange) {
			x.Wait(2, time.Minute)
			<-moved
			x.Wait(1, time.Minute)
			<-granted
			holding(x)
		})
		blocked(b, func() string { return heldByDB1 })
		p := begin(t, slices.Concat(args[:1], []string{"--socket", b.Socket}, args[1:])...)
		const line = `bakeryctl: waiting for "a b": ` + heldByDB1 + "; 2 ahead\n"
		eventually(t, "the line", func() bool { return p.content(p.stderr) == line })
		close(moved)
		close(granted)
		if args[0] == "hold" {
			eventually(t, "the grant", b.Held)
			p.signal(syscall.SIGTERM)
			p.wait()
		} else {
			p.exits(0)
		}
		require.Equal(t, line, p.content(p.stderr))
	}
}

func TestLock_GivesUp_SaysWhatItWaitedFor(t *testing.T) {
	for want, args := range map[string][]string{
		"gave up waiting for \"x\" after 0.1 s: " + heldByDB1 + "; 2 ahead": {"-w", "0.1"},
		"\"x\" is not free: " + heldByDB1:                                   {"-n"},
	} {
		b := serve(t, func(x *exchange) {
			if !x.NonBlock {
				x.Wait(2, time.Minute)
			}
			x.Refuse(map[bool]string{true: "busy", false: "timeout"}[x.NonBlock], "no", "")
		})
		blocked(b, func() string { return heldByDB1 })
		p := begin(t, slices.Concat([]string{"lock", "--socket", b.Socket}, args, []string{"x", "--", "true"})...)
		p.exits(1)
		p.printed(t, "", "bakeryctl: "+want+"\n")
	}
}

// TestLock_GivesUp_UnwritableStderr_Exits: a caller that does not read standard error gets the exit code.
func TestLock_GivesUp_UnwritableStderr_Exits(t *testing.T) {
	b := serve(t, func(x *exchange) { x.Refuse("busy", "no", "") })
	for name, unusable := range map[string]func(r, w *os.File){
		"full pipe": func(_, w *os.File) {
			for term.Writable(w) {
				_, err := w.WriteString(strings.Repeat("x", 4096))
				require.NoError(t, err)
			}
		},
		"reader has ended": func(r, _ *os.File) { require.NoError(t, r.Close()) },
	} {
		for code, args := range map[int][]string{0: {"lock", "-n", "-E", "0", "x", "--", "true"}, 9: {"hold", "-n", "-E", "9", "x"}} {
			t.Run(name+", "+args[0], func(t *testing.T) {
				r, w, err := os.Pipe()
				require.NoError(t, err)
				defer r.Close()
				defer w.Close()
				unusable(r, w)
				p := prepare(t, slices.Concat(args[:1], []string{"--socket", b.Socket}, args[1:])...)
				p.cmd.Stderr = w
				p.start()
				p.exits(code)
			})
		}
	}
}
