// Package hostid has the identity of this host in a lockspace: its name, machine id and boot id,
// the lock files that prevent two processes of this machine from using one host id, and the paths
// of files that outlive the process and the boot.
package hostid

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrTaken is returned when another process of this machine uses the host id.
var ErrTaken = errors.New("another process on this machine has the host id")

// Identity is the identity of this host in one lockspace, and its files.
type Identity struct {
	Options // as New completed them
	UUID    layout.UUID

	files sync.Map // held lock files by host id
}

// Options are the parts of an identity that the configuration sets.
type Options struct {
	Name       string // empty: the host name
	MachineID  [16]byte
	BootID     [16]byte
	RuntimeDir string // of lock files, which a reboot removes; empty: /run/bakery for root, else below XDG_RUNTIME_DIR
	StateDir   string // of files that outlive a reboot; empty: /var/lib/bakery for root, else below XDG_STATE_HOME
}

// SettingError is the error of a setting of this host.
type SettingError struct {
	Flag string // of bakeryd that has the setting, without dashes
	Err  error
	Of   error // what it counts as, such as api.ErrInvalid; nil if it is Err alone
}

func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns both errors.
func (e *SettingError) Unwrap() []error { return []error{e.Err, e.Of} }

// New returns the identity in a lockspace and creates its directories. It returns a SettingError for
// an invalid name, which is an api.ErrInvalid, and for a directory.
func New(cfg Options, uuid layout.UUID) (*Identity, error) {
	id := &Identity{Options: cfg, UUID: uuid}
	if cfg.Name == "" {
		name, _ := os.Hostname()
		id.Name = name[:min(len(name), layout.MaxName)]
	}
	if err := layout.ValidateHostName(id.Name); err != nil {
		return nil, &SettingError{"name", err, api.ErrInvalid}
	}
	var err error
	if id.RuntimeDir, err = cfg.runtimeDir(); err != nil {
		return nil, err
	}
	if id.StateDir, err = privateDir(cfg.StateDir, "/var/lib/bakery", "XDG_STATE_HOME"); err != nil {
		return nil, &SettingError{"state-dir", fmt.Errorf("state directory: %w", err), nil}
	}
	return id, nil
}

func (o Options) runtimeDir() (string, error) {
	dir, err := privateDir(o.RuntimeDir, "/run/bakery", "XDG_RUNTIME_DIR")
	if err != nil {
		return "", &SettingError{"runtime-dir", fmt.Errorf("runtime directory: %w", err), nil}
	}
	return dir, nil
}

// privateDir creates a directory and returns its path: asked if that is set, system for root, else
// "bakery" below the directory of the variable env, or below one of the user in the directory for
// temporary files. There it must belong to the user alone.
func privateDir(asked, system, env string) (string, error) {
	dir := asked
	if dir == "" && os.Getuid() == 0 {
		dir = system
	}
	shared := dir == "" && os.Getenv(env) == ""
	if dir == "" {
		base := cmp.Or(os.Getenv(env), filepath.Join(os.TempDir(), "user-"+strconv.Itoa(os.Getuid())))
		dir = filepath.Join(base, "bakery")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if shared {
		for _, d := range []string{filepath.Dir(dir), dir} {
			if err := checkOwnDir(d); err != nil {
				return "", fmt.Errorf("%w; set %s to a directory of your own", err, env)
			}
		}
	}
	return dir, nil
}

// checkOwnDir returns an error unless path is a directory of this user in which no other user may
// write.
func checkOwnDir(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of user %d alone", path, os.Getuid())
	}
	return nil
}

// HostRecord returns a host record with the name and the ids of this host.
func (id *Identity) HostRecord() layout.HostRecord {
	return layout.HostRecord{Name: id.Name, MachineID: id.MachineID, BootID: id.BootID}
}

// TakeLockFile locks the lock file of a host id, until ReleaseLockFiles or the end of the process.
// On one disk, a process with a write that is stuck in the kernel does not end, so that no next process
// writes before that write returns. On several see [Options.KeepDisk]. It returns ErrTaken. Calls for the same id do not overlap.
func (id *Identity) TakeLockFile(host int) error {
	if _, held := id.files.Load(host); held {
		return nil
	}
	path := filepath.Join(id.RuntimeDir, fmt.Sprintf("%s-%d.lock", id.UUID, host))
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return &SettingError{"runtime-dir", fmt.Errorf("open lock file of host id %d: %w", host, err), nil}
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("%w %d (lock file %s)", ErrTaken, host, path)
			}
			return fmt.Errorf("lock %s: %w", path, err)
		}
		if !stillAt(f, path) {
			f.Close() // its previous owner removed it
			continue
		}
		id.files.Store(host, f)
		return nil
	}
}

// stillAt reports whether path names the open file.
func stillAt(f *os.File, path string) bool {
	open, err := f.Stat()
	there, thereErr := os.Stat(path)
	return err == nil && thereErr == nil && os.SameFile(open, there)
}

// ReleaseLockFiles removes and unlocks the lock files. The caller has no write in flight, except to a disk that
// keeps a file of KeepDisk.
func (id *Identity) ReleaseLockFiles() {
	id.files.Range(func(host, _ any) bool {
		if file, held := id.files.LoadAndDelete(host); held { // once, even if two calls release it
			f := file.(*os.File)
			_ = os.Remove(f.Name()) // before it is unlocked: no other process can have it
			f.Close()
		}
		return true
	})
}

// LeftPath returns the path of the file with the incarnation that last left a host id before its
// lease ended. A host that knows this incarnation takes the id again without waiting for late
// writes.
func (id *Identity) LeftPath(host string) string { return id.statePath(host, ".left") }

func (id *Identity) statePath(host, suffix string) string {
	return filepath.Join(id.StateDir, id.UUID.String()+"-"+host+suffix)
}

// LeftIncarnations returns the incarnations that RecordLeft recorded.
func (id *Identity) LeftIncarnations() (incarnations []uint64) {
	hosts, _ := Files(id.StateDir, id.UUID, ".left")
	for _, host := range hosts {
		b, _ := os.ReadFile(id.LeftPath(host))
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 16, 64); err == nil {
			incarnations = append(incarnations, n)
		}
	}
	return incarnations
}

// RecordLeft records the incarnation that has left a host id. It ignores errors: without the file
// the next join takes longer.
func (id *Identity) RecordLeft(host int, incarnation uint64) {
	if incarnation == 0 {
		return
	}
	path := id.LeftPath(strconv.Itoa(host))
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	err := os.WriteFile(tmp, fmt.Appendf(nil, "%016x\n", incarnation), 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // it may be incomplete, if the disk is full
	}
}

// JoinedHosts returns the host ids as which this machine has joined.
func (id *Identity) JoinedHosts() (hosts []int) {
	names, _ := Files(id.StateDir, id.UUID, ".joined")
	for _, host := range names {
		if n, err := strconv.Atoi(host); err == nil {
			hosts = append(hosts, n)
		}
	}
	return hosts
}

// RecordJoined records that this machine has joined as a host. With the file the machine may take
// the id again although its record cannot be read. It ignores errors: without the file only an
// operator can clear such a record.
func (id *Identity) RecordJoined(host int) {
	if f, err := os.OpenFile(id.statePath(strconv.Itoa(host), ".joined"), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		f.Close()
	}
}

// EventsPath returns the path of the event journal of a host id.
func (id *Identity) EventsPath(host int) string { return id.statePath(strconv.Itoa(host), ".events") }

// MachineID returns the id of this machine, zero if the system has none.
func MachineID() [16]byte { return readID("/etc/machine-id") }

// BootID returns the id of this boot, zero if the system has none.
func BootID() [16]byte { return readID("/proc/sys/kernel/random/boot_id") }

func readID(path string) [16]byte {
	b, _ := os.ReadFile(path)
	if id, err := uuid.ParseBytes(bytes.TrimSpace(b)); err == nil {
		return id
	}
	return [16]byte{}
}

// Files lists the files of a lockspace in a directory, which are named UUID-X and the suffix. It
// returns each X.
func Files(dir string, uuid layout.UUID, suffix string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		rest, isOurs := strings.CutPrefix(e.Name(), uuid.String()+"-")
		rest, hasSuffix := strings.CutSuffix(rest, suffix)
		if isOurs && hasSuffix {
			found = append(found, rest)
		}
	}
	return found, err
}
