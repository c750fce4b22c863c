//go:build vm

package vm

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait of a test; a passing test is much faster.
const patience = 3 * time.Minute

var (
	base      string // directory of all files of the tests
	kernel    string // image
	initramfs string
)

var (
	keep   = flag.Bool("keep", false, "keep what the tests leave, as after a failure")
	inTurn = flag.Bool("reboot", false, "in the scenario units, have a host reboot by a lock, which takes long")
	wait   = flag.Bool("wait", false, "at the end of a test leave its machines up until their file \"wait\" is removed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "vm:", err)
		return 1
	}
	if runtime.GOARCH != "amd64" {
		return complain(fmt.Errorf("its machines are amd64, as is their kernel; this one is %s", runtime.GOARCH))
	}
	for _, tool := range []string{"qemu-system-x86_64", "apt-get", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			return complain(err)
		}
	}
	var err error
	if base, err = os.MkdirTemp(cmp.Or(os.Getenv("BAKERY_TEST_DIR"), "/var/tmp"), "vm"); err != nil {
		return complain(err)
	}
	defer func() {
		if err := tidy(code == 0 && !*keep); err != nil {
			code = complain(err)
		}
	}()
	if err := prepare(); err != nil {
		return complain(err)
	}
	return m.Run()
}

// tidy removes the files: all, or all except what the tests have left.
func tidy(all bool) error {
	if all {
		return os.RemoveAll(base)
	}
	fmt.Println("kept:", base)
	for _, dir := range []string{"root", "kernel", "busybox", "tgt", "debian", "initramfs", "snapshots"} {
		if err := os.RemoveAll(filepath.Join(base, dir)); err != nil {
			return err
		}
	}
	return nil
}

// prepare builds what all machines boot.
func prepare() error {
	root := filepath.Join(base, "root")
	for _, dir := range []string{"bin", "dev", "etc", "proc", "run", "sys", "tmp", "var/lib/bakery"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := fetchBusybox(root); err != nil {
		return fmt.Errorf("get busybox: %w", err)
	}
	if err := build(filepath.Join(root, "bin")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(root, "bin/guest"), filepath.Join(root, "init")); err != nil {
		return err
	}
	var err error
	if kernel, err = fetchKernel(root); err != nil {
		return fmt.Errorf("get a kernel: %w", err)
	}
	initramfs = filepath.Join(base, "initramfs")
	return archive(initramfs, root)
}

// build builds the machines' programs: those under test, and tests that need a machine.
func build(dir string) error {
	const module = "github.com/bakeryd/bakeryd/"
	flags := []string{"-tags", "vm", "-buildvcs=false", "-trimpath"}
	own := append(slices.Clone(flags), "-ldflags=-s -w", "-o", dir+"/")
	for _, argv := range [][]string{
		append([]string{"../../cmd/build", dir}, flags...),
		append(append([]string{"go", "build"}, own...), module+"test/vm/guest", module+"test/vm/pr", module+"test/vm/section"),
		append(append([]string{"go", "test", "-c"}, own...), module+"daemon/watchdog"),
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GO_LDFLAGS=-s -w")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", argv, err, out)
		}
	}
	return nil
}

// place returns the directory for the results of a test.
func place(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(base, t.Name())
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// directory returns a directory for a test on a disk, for direct IO.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(place(t), "d")
	require.NoError(t, err)
	return dir
}

var lingered sync.Map // by test

// linger keeps the machines of a test running, for interactive use.
func linger(t *testing.T) {
	file := filepath.Join(place(t), "wait")
	if _, again := lingered.LoadOrStore(t.Name(), true); again || !*wait || os.WriteFile(file, nil, 0o600) != nil {
		return
	}
	shells, _ := filepath.Glob(filepath.Join(place(t), "*", "shell"))
	fmt.Printf("machines are up until you remove %s; to look around:\n", file)
	for _, shell := range shells {
		fmt.Printf("\tsocat -,raw,echo=0 UNIX-CONNECT:%s\n", shell)
	}
	for _, err := os.Stat(file); err == nil; _, err = os.Stat(file) {
		time.Sleep(100 * time.Millisecond)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventuallyWithin(t, patience, what, holds)
}

func eventuallyWithin(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
