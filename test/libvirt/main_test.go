//go:build libvirt

package libvirt

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// patience bounds every wait of a test; a passing test is much faster.
const patience = 3 * time.Minute

var (
	base string // directory of all files of the tests
	root string // unpacked packages
	bin  string // programs under test
)

// packages are downloaded, and of their dependencies those that are not installed.
var packages = []string{"libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "libvirt-sanlock", "sanlock"}

var reference = flag.Bool("sanlock", false, "run sanlock instead of bakeryd: with -run '"+withSanlock+"', as other tests need bakeryd")

// withSanlock matches the tests that expect the same from sanlock.
const withSanlock = "TestDomain_|TestDisk_Attached|TestCleanup_|TestHost_"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "libvirt:", err)
		return 1
	}
	if os.Getuid() != 0 {
		return complain(fmt.Errorf("namespaces need root"))
	}
	for _, tool := range []string{"apt-get", "dpkg-deb", "nsenter", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(tool); err != nil {
			return complain(err)
		}
	}
	var err error
	if base, err = os.MkdirTemp(cmp.Or(os.Getenv("BAKERY_TEST_DIR"), "/var/tmp"), "libvirt"); err != nil {
		return complain(err)
	}
	defer func() {
		if err := os.RemoveAll(base); err != nil {
			code = complain(err)
		}
	}()
	if err := os.Chmod(base, 0o711); err != nil { // qemu is another user
		return complain(err)
	}
	root, bin = filepath.Join(base, "root"), filepath.Join(base, "bin")
	for _, step := range []func() error{unpack, build} {
		if err := step(); err != nil {
			return complain(err)
		}
	}
	return m.Run()
}

// unpack downloads the packages and unpacks them.
func unpack() error {
	archives := filepath.Join(base, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	get := func() error {
		return execute(append([]string{"apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600", "-o", "Dir::Cache::archives=" + archives,
			"install", "-y", "--download-only", "--reinstall", "--no-install-recommends"}, packages...)...)
	}
	if err := get(); err != nil { // the package lists may be out of date
		if err := execute("apt-get", "update", "-qq"); err != nil {
			return err
		}
		if err := get(); err != nil {
			return err
		}
	}
	return execute("sh", "-ec", `mkdir "$2"; for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2"; done; rm -r "$1"`, "sh", archives, root)
}

// build builds the programs under test. sanlock wants to lock memory even if told not to, which a container may
// not allow.
func build() error {
	if err := execute("../../cmd/build", bin, "-buildvcs=false"); err != nil || !*reference {
		return err
	}
	return execute("gcc", "-O2", "-shared", "-fPIC", "-o", filepath.Join(bin, "nolimit.so"), "../bench/sanlock/nolimit.c")
}

func execute(argv ...string) error {
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", argv, err, out)
	}
	return nil
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
