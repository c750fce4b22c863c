//go:build lab

package lab

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds what a test waits for; nothing that works takes nearly as long.
const patience = 2 * time.Minute

var (
	base      string // directory of all that the tests make
	kernel    string // image
	initramfs string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "lab:", err)
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
	if base, err = os.MkdirTemp(cmp.Or(os.Getenv("BAKERY_TEST_DIR"), "/var/tmp"), "lab"); err != nil {
		return complain(err)
	}
	defer func() {
		if err := os.RemoveAll(base); err != nil {
			code = complain(err)
		}
	}()
	if err := prepare(); err != nil {
		return complain(err)
	}
	return m.Run()
}

// prepare makes what all machines boot.
func prepare() error {
	root := filepath.Join(base, "root")
	for _, dir := range []string{"bin", "dev", "proc", "run", "sys", "tmp"} {
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

// build puts the programs of the machines into a directory: those under test, and tests that want a machine.
func build(dir string) error {
	const module = "github.com/bakeryd/bakeryd/"
	flags := []string{"-tags", "lab", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", dir + "/"}
	for _, argv := range [][]string{
		append(append([]string{"go", "build"}, flags...), module+"cmd/bakeryd", module+"cmd/bakeryctl", module+"test/lab/guest", module+"test/lab/pr"),
		append(append([]string{"go", "test", "-c"}, flags...), module+"daemon/watchdog"),
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", argv, err, out)
		}
	}
	return nil
}

// directory makes a directory for a test: on a disk, for what uses direct IO.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, "t")
	require.NoError(t, err)
	return dir
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
