package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuild_SignalsIgnoredOrBlocked_AreInheritedByTheCommand builds bakeryctl as packages have it:
// the test binary has the entry point of the Go runtime.
func TestBuild_SignalsIgnoredOrBlocked_AreInheritedByTheCommand(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("../build", dir, "-buildvcs=false").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := serve(t, holding)
	for name, state := range map[string][]string{
		"none":                                        nil,
		"PIPE ignored, as by systemd":                 {"--ignore-signal=PIPE"},
		"USR2 ignored, TERM blocked":                  {"--ignore-signal=USR2", "--block-signal=TERM"},
		"CHLD, URG and a real-time signal ignored":    {"--ignore-signal=CHLD", "--ignore-signal=URG", "--ignore-signal=RTMIN+3"},
		"HUP and SEGV ignored, PROF and CHLD blocked": {"--ignore-signal=HUP", "--ignore-signal=SEGV", "--block-signal=PROF", "--block-signal=CHLD"},
	} {
		t.Run(name, func(t *testing.T) {
			show := []string{"grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status"}
			lock := []string{filepath.Join(dir, "bakeryctl"), "lock", "--socket", b.Socket, "x", "--"}
			run := func(argv ...string) string {
				t.Helper()
				out, err := exec.Command("env", slices.Concat(state, argv)...).CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v: %s", argv, err, out)
				}
				return string(out)
			}
			require.Equal(t, run(show...), run(slices.Concat(lock, show)...), "under the lock")
		})
	}
}
