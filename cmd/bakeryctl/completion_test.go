package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/test/calltest"
)

// Names of locks come from bakeryd, and are completed only as names of locks.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := calltest.Serve(t, 200, `{"locks": [{"name": "nightly-backup"}, {"name": "night.watch"}, {"name": "deploy"}],
		"hosts": [{"id": 1, "name": "db1", "health": "live"}, {"id": 2, "name": "db2", "health": "silent"}, {"id": 7, "name": "", "health": "left"},
			{"id": 8, "name": "vm", "health": "live"}, {"id": 9, "name": "vm", "health": "live"}, {"id": 10, "name": "x\u001b[0m", "health": "live"}],
		"disks": [{"position": 1, "device": "/dev/sdb", "uuid": "0bdfaeb3-558b-4bcb-a44a-790c37a16658", "state": "up"},
			{"position": 2, "device": "", "uuid": "1bdfaeb3-558b-4bcb-a44a-790c37a16658", "state": "down"}]}`)
	disk1 := "0bdfaeb3-558b-4bcb-a44a-790c37a16658\tdisk 1, up, /dev/sdb"
	const noFiles, files = ":4", ":0"
	for line, want := range map[string][]string{
		"lock |n":                      {"nightly-backup", "night.watch", noFiles},
		"lock |-s|":                    {"nightly-backup", "night.watch", "deploy", noFiles},
		"lock |-s|nightly-backup|":     {files},
		"lock |deploy|--|sh|":          {files},
		"hold |de":                     {"deploy", noFiles},
		"rm |":                         {"nightly-backup", "night.watch", "deploy", noFiles},
		"rm |deploy|":                  {noFiles},
		"request |d":                   {"deploy", noFiles},
		"events |d":                    {"deploy", noFiles},
		"value|get|d":                  {"deploy", noFiles},
		"mode |":                       {"shared", "exclusive", noFiles},
		"mode |shared|":                {noFiles},
		"evict |":                      {"db1\thost 1, live", "db2\thost 2, silent", "7\thost 7, left", "8\thost 8, live", "9\thost 9, live", "10\thost 10, live", noFiles},
		"evict |db2|":                  {noFiles},
		"probe |/dev/sdb|--with|db1":   {"db1\thost 1, live", files},
		"disk|replace|0":               {disk1, files},
		"disk|replace|1|":              {files},
		"disk|replace|1|/dev/sdc|":     {noFiles},
		"disk|":                        {"replace\tReplace a member disk while hosts use the lockspace", noFiles},
		"timeline|--lock|de":           {"deploy", noFiles},
		"timeline|":                    {files},
		"timeline|-o|":                 {files},
		"format |":                     {files},
		"format |--policy|":            {"lease", "fence", "manual", noFiles},
		"format |--lease|":             {noFiles},
		"status |--color|a":            {"auto", "always", "never", noFiles},
		"status |--color=n":            {"auto", "always", "never", noFiles}, // the shell chooses
		"status |--device|":            {files},
		"status |--socket|":            {files},
		"status |":                     {noFiles},
		"create |":                     {noFiles},
		"create |--permits|":           {noFiles},
		"value|set|":                   {noFiles},
		"bench |--only|wr":             {"uncontended", "in_process", "reacquire", "handover", "handoff", "wrapper", noFiles},
		"help|val":                     {"value\tRead the value of a lock, or set it under the lock", noFiles},
		"help|value|g":                 {"get\tPrint the value of a lock", noFiles},
		"help|nosuch|":                 {noFiles},
		"loc":                          {"lock\tRun a command under a lock", "locks\tList the locks of the lockspace", noFiles},
		"lock |--cr":                   {"--create\tcreate the lockspace of --device if the file does not exist", noFiles},
		"--socket|/nonesuch|lock|":     {noFiles},
		"--socket|/nonesuch|locks|--j": {"--json\tprint JSON", noFiles},
	} {
		args := strings.Split(strings.ReplaceAll(line, " ", ""), "|")
		code, out := completed(t, soon, s.Socket, args...)
		require.Equal(t, cli.ExitOK, code, line)
		require.Equal(t, strings.Join(want, "\n")+"\n", out, line)
		for len(s.Asked) > 0 {
			<-s.Asked // the server blocks when it is full
		}
	}
}

// hostile are names as another host may write them to the disk.
const hostile = `{"name": "$(touch pwned)a"}, {"name": "$(touch pwned)b"}, {"name": "` + "`touch pwned`" + `"}, {"name": "x;touch pwned"},
	{"name": "x touch"}, {"name": "'x"}, {"name": "x>pwned"}, {"name": "~"}, {"name": "{a,b}"}, {"name": "x!"}, {"name": "x*"}, {"name": "-x"}, {"name": "=ls"},
	{"name": "--device=x"}, {"name": "ö"}, {"name": "a\tb"}, {"name": "a\nb"}, {"name": "x\u001b[0m"}, {"name": ""}, {"name": "7"}`

// TestCompletion_HostileNames_OffersIdsAndNoSuchLock: a shell evaluates what it is given.
func TestCompletion_HostileNames_OffersIdsAndNoSuchLock(t *testing.T) {
	t.Parallel()
	hosts, id := hostile, 0
	var ids strings.Builder
	for strings.Contains(hosts, `{"name"`) {
		id++
		hosts = strings.Replace(hosts, `{"name"`, fmt.Sprintf(`{"id": %d, "health": "live", "name"`, id), 1)
		fmt.Fprintf(&ids, "%d\thost %d, live\n", id, id)
	}
	s := calltest.Serve(t, 200, `{"locks": [`+hostile+`, {"name": "Az-09_./:@%+,="}], "hosts": [`+hosts+`]}`)
	_, out := completed(t, soon, s.Socket, "lock", "")
	require.Equal(t, "7\nAz-09_./:@%+,=\n:4\n", out)
	<-s.Asked
	_, out = completed(t, soon, s.Socket, "lock", "$")
	require.Equal(t, ":4\n", out)
	<-s.Asked
	_, out = completed(t, soon, s.Socket, "evict", "")
	require.Equal(t, ids.String()+":4\n", out)
}

// TestCompletion_Bash_RunsNoCommandOfAName: bash inserts what the words have in common, and the next completion
// evaluates it.
func TestCompletion_Bash_RunsNoCommandOfAName(t *testing.T) {
	t.Parallel()
	s := calltest.Serve(t, 200, `{"locks": [`+hostile+`, {"name": "x-1"}, {"name": "x-2"}]}`)
	var script bytes.Buffer
	require.Equal(t, cli.ExitOK, run(t.Context(), []string{"completion", "bash"}, &app{stdout: &script, stderr: io.Discard}))
	_, offered := completed(t, soon, s.Socket, "rm", "")
	dir := t.TempDir()
	cmd := exec.Command("bash", "--norc", "-c", `eval "$1"; answer=$2
		bakeryctl() { printf %s "$answer"; }
		_init_completion() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[-1]} prev=; }
		complete_words() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9; __start_bakeryctl 2>/dev/null; }
		complete_words bakeryctl rm ""
		for word in "${COMPREPLY[@]}"; do
			echo "$word"
			for ((i = 1; i <= ${#word}; i++)); do complete_words bakeryctl rm "${word:0:i}"; done
		done`, "-", script.String(), offered)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "a command ran")
	require.Equal(t, "7\nx-1\nx-2\n", string(out))
}

// Completion has a short timeout.
func TestCompletion_BakerydDoesNotAnswer_ReturnsNothing(t *testing.T) {
	t.Parallel()
	mute := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", mute) // accepts connections and never reads
	require.NoError(t, err)
	defer ln.Close()
	code, out := completed(t, completionTimeout, mute, "lock", "")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, ":4\n", out)
	code, out = completed(t, soon, filepath.Join(t.TempDir(), "none"), "lock", "")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, ":4\n", out)
}

// completed runs the completion of the last word as a shell does.
func completed(t *testing.T, timeout time.Duration, socket string, words ...string) (code int, stdout string) {
	t.Helper()
	var out bytes.Buffer
	code = run(t.Context(), append([]string{"--socket", socket, "__complete"}, words...),
		&app{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard, completionTimeout: timeout})
	return code, out.String()
}

// With many locks a shell gets only the different beginnings, so that none is hidden.
func TestCompletion_ManyLocks_ReturnsBeginnings(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	for i := range 65536 {
		fmt.Fprintf(&list, `{"name": "%c-%05d"},`, "xy"[i%2], i)
	}
	s := calltest.Serve(t, 200, `{"locks": [`+list.String()+`{"name": "z"}]}`)
	for begun, want := range map[string]string{
		"":        "x\ny\nz\n:6\n",
		"x-":      "x-0\nx-1\nx-2\nx-3\nx-4\nx-5\nx-6\n:6\n",
		"x-6553":  "x-65530\nx-65532\nx-65534\n:4\n",
		"x-65534": "x-65534\n:4\n",
		"q":       ":4\n",
	} {
		code, out := completed(t, soon, s.Socket, "rm", begun)
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, want, out, begun)
	}
}
