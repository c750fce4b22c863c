package main

import (
	"bytes"
	"io"
	"net"
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
	s := calltest.Serve(t, 200, `{"locks": [{"name": "nightly-backup"}, {"name": "night watch"}, {"name": "deploy"}, {"name": "ö"}]}`)
	const noFiles, files = ":4", ":0"
	for line, want := range map[string][]string{
		"lock |n":                      {"nightly-backup", "night watch", noFiles},
		"lock |-s|":                    {"nightly-backup", "night watch", "deploy", "ö", noFiles},
		"lock |-s|nightly-backup|":     {files},
		"lock |deploy|--|sh|":          {files},
		"hold |de":                     {"deploy", noFiles},
		"rm |":                         {"nightly-backup", "night watch", "deploy", "ö", noFiles},
		"rm |deploy|":                  {noFiles},
		"request |d":                   {"deploy", noFiles},
		"events |d":                    {"deploy", noFiles},
		"value|get|d":                  {"deploy", noFiles},
		"mode |":                       {"shared", "exclusive", noFiles},
		"loc":                          {"lock\tRun a command under a lock", "locks\tList the locks of the lockspace", noFiles},
		"lock |--cr":                   {"--create\tcreate the lockspace of --device if the file does not exist", noFiles},
		"--socket|/nonesuch|lock|":     {noFiles},
		"--socket|/nonesuch|locks|--j": {"--json\tprint JSON", noFiles},
	} {
		args := strings.Split(strings.ReplaceAll(line, " ", ""), "|")
		code, out := complete(t, soon, s.Socket, args...)
		require.Equal(t, cli.ExitOK, code, line)
		require.Equal(t, strings.Join(want, "\n")+"\n", out, line)
	}
}

// Completion has a short timeout.
func TestCompletion_BakerydDoesNotAnswer_ReturnsNothing(t *testing.T) {
	t.Parallel()
	mute := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", mute) // accepts connections and never reads
	require.NoError(t, err)
	defer ln.Close()
	code, out := complete(t, completionTimeout, mute, "lock", "")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, ":4\n", out)
	code, out = complete(t, soon, filepath.Join(t.TempDir(), "none"), "lock", "")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, ":4\n", out)
}

// complete runs the completion of the last word as a shell does.
func complete(t *testing.T, timeout time.Duration, socket string, words ...string) (code int, stdout string) {
	t.Helper()
	var out bytes.Buffer
	code = run(t.Context(), append([]string{"--socket", socket, "__complete"}, words...),
		&app{stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard, completionTimeout: timeout})
	return code, out.String()
}
