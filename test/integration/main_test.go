//go:build integration

package integration

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of a test. On a slow disk a host joins after 1.2 times the longest
// lease, 60 s.
const patience = 2 * time.Minute

var (
	base    string // directory of all files of the tests
	memory  string // directory below it, on a tmpfs
	plain   programs
	racing  = sync.OnceValues(func() (programs, error) { return build("race", "-race") })
	testEnv = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GORACE=atexit_sleep_ms=0"}
)

// programs are the paths of the programs under test.
type programs struct{ bakeryd, bakeryctl string }

func TestMain(m *testing.M) {
	if code, played := play(os.Args); played {
		os.Exit(code)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	if os.Getuid() != 0 {
		return complain(fmt.Errorf("loop devices need root"))
	}
	for _, tool := range []string{"losetup", "unshare", "strace", "curl", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			return complain(err)
		}
	}
	var err error
	if base, err = os.MkdirTemp(cmp.Or(os.Getenv("BAKERY_TEST_DIR"), "/var/tmp"), "bk"); err != nil {
		return complain(err)
	}
	defer func() {
		if err := os.RemoveAll(base); err != nil {
			code = complain(err)
		}
	}()
	memory = filepath.Join(base, "mem")
	if err := os.Mkdir(memory, 0o755); err != nil {
		return complain(err)
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "mode=0755"); err != nil {
		return complain(fmt.Errorf("mount a tmpfs on %s: %w", memory, err))
	}
	defer func() {
		if err := unix.Unmount(memory, 0); err != nil {
			code = complain(fmt.Errorf("unmount %s: %w", memory, err))
		}
	}()
	if plain, err = build("bin"); err != nil {
		return complain(err)
	}
	return m.Run()
}

func build(dir string, flags ...string) (programs, error) {
	dir = filepath.Join(base, dir) + "/"
	cmd := exec.Command("../../cmd/build", append([]string{dir, "-buildvcs=false"}, flags...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return programs{}, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return programs{dir + "bakeryd", dir + "bakeryctl"}, nil
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// onSectors runs a test in its own lockspace with both sizes of sector.
func onSectors(t *testing.T, f func(t *testing.T, s *space)) {
	t.Helper()
	bySector(t, func(t *testing.T, sector int) { f(t, newSpace(t, sector)) })
}

// bySector runs a test with both sizes of sector.
func bySector(t *testing.T, f func(t *testing.T, sector int)) {
	t.Parallel()
	for _, sector := range []int{512, 4096} {
		t.Run(fmt.Sprint(sector), func(t *testing.T) {
			t.Parallel()
			f(t, sector)
		})
	}
}
