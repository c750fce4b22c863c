package daemon

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// identity is what this host says of itself, and what it keeps of itself in
// files, for one lockspace.
type identity struct {
	uuid    layout.UUID
	name    string
	machine [16]byte
	boot    [16]byte
	runtime string // directory of lock files: gone after a reboot, as the locks are
	state   string // directory of what outlives a reboot

	mu    sync.Mutex       // guards files
	files map[int]*os.File // lock files held, by host id
}

func newIdentity(cfg Config, uuid layout.UUID) (*identity, error) {
	id := &identity{files: map[int]*os.File{}, uuid: uuid, name: cfg.Name, machine: cfg.machine.MachineID, boot: cfg.machine.BootID}
	if id.name == "" {
		id.name, _ = os.Hostname()
	}
	if cfg.Name == "" && len(id.name) > layout.MaxName {
		id.name = id.name[:layout.MaxName]
	}
	if err := layout.ValidateHostName(id.name); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	var err error
	if id.runtime, err = privateDir(cfg.RuntimeDir, "/run/bakery", "XDG_RUNTIME_DIR"); err != nil {
		return nil, err
	}
	id.state, err = privateDir(cfg.StateDir, "/var/lib/bakery", "XDG_STATE_HOME")
	return id, err
}

// privateDir makes the directory asked for; where none is, root's, and for
// others one below what the environment or the system has for them. In a
// directory of everybody's it has to be their own.
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
		return "", fmt.Errorf("make the directory for lock files: %w", err)
	}
	if shared {
		for _, d := range []string{filepath.Dir(dir), dir} {
			if err := ownDir(d); err != nil {
				return "", fmt.Errorf("%w; set %s to a directory of your own", err, env)
			}
		}
	}
	return dir, nil
}

// ownDir returns an error unless a path is a directory of this user's, in which nobody else may write.
func ownDir(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of user %d alone", path, os.Getuid())
	}
	return nil
}

func (id *identity) record() layout.HostRecord {
	return layout.HostRecord{Name: id.name, MachineID: id.machine, BootID: id.boot}
}

// claim takes the lock file of a host id of this lockspace. It is held until
// the process ends, and so also while a write of it is stuck in the kernel:
// a successor never writes past that one. It returns ErrIDTaken.
func (id *identity) claim(host int) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.files[host] != nil {
		return nil
	}
	path := filepath.Join(id.runtime, fmt.Sprintf("%s-%d.lock", id.uuid, host))
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("open the lock file of host id %d: %w", host, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("%w %d (lock file %s)", ErrIDTaken, host, path)
			}
			return fmt.Errorf("lock %s: %w", path, err)
		}
		if !stillAt(f, path) {
			f.Close() // its owner removed it meanwhile
			continue
		}
		id.files[host] = f
		return nil
	}
}

// stillAt tells whether path names the file that is open.
func stillAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

// release gives the lock files back: when no write is under way any more.
func (id *identity) release() {
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, f := range id.files {
		_ = os.Remove(f.Name()) // while it is locked, so it is nobody else's
		f.Close()
	}
	clear(id.files)
}

// leftFile keeps the incarnation that last left a host id of this lockspace in
// good time: who knows it may take the id again without waiting for late writes.
func (id *identity) leftFile(host string) string {
	return filepath.Join(id.state, fmt.Sprintf("%s-%s.left", id.uuid, host))
}

func (id *identity) left() (incarnations []uint64) {
	paths, _ := filepath.Glob(filepath.Join(globQuote(id.state), fmt.Sprintf("%s-*.left", id.uuid)))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 16, 64); err == nil {
			incarnations = append(incarnations, n)
		}
	}
	return incarnations
}

// keepLeft fails silently: without the file the next join takes longer.
func (id *identity) keepLeft(host int, incarnation uint64) {
	if incarnation == 0 {
		return
	}
	path := id.leftFile(strconv.Itoa(host))
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	err := os.WriteFile(tmp, fmt.Appendf(nil, "%016x\n", incarnation), 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // a full disk may have taken half of it
	}
}

// hadFile exists if this machine has joined this lockspace as a host: it may take the id again though its record cannot
// be read.
func (id *identity) hadFile(host string) string {
	return filepath.Join(id.state, fmt.Sprintf("%s-%s.joined", id.uuid, host))
}

// had returns the host ids that this machine had.
func (id *identity) had() (hosts []int) {
	paths, _ := filepath.Glob(filepath.Join(globQuote(id.state), fmt.Sprintf("%s-*.joined", id.uuid)))
	for _, path := range paths {
		host := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), id.uuid.String()+"-"), ".joined")
		if n, err := strconv.Atoi(host); err == nil {
			hosts = append(hosts, n)
		}
	}
	return hosts
}

// keepHad ignores errors: without the file only an operator can have an unreadable record of this id taken.
func (id *identity) keepHad(host int) {
	if f, err := os.OpenFile(id.hadFile(strconv.Itoa(host)), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		f.Close()
	}
}

// eventsFile keeps what has happened on a host id of this lockspace.
func (id *identity) eventsFile(host int) string {
	return filepath.Join(id.state, fmt.Sprintf("%s-%d.events", id.uuid, host))
}

// machineID and bootID are zero where the system has none.
func machineID() [16]byte { return idFile("/etc/machine-id") }

func bootID() [16]byte { return idFile("/proc/sys/kernel/random/boot_id") }

func idFile(path string) (id [16]byte) {
	b, err := os.ReadFile(path)
	if err != nil {
		return id
	}
	b = bytes.ReplaceAll(bytes.TrimSpace(b), []byte("-"), nil)
	if n, err := hex.Decode(id[:], b[:min(len(b), 32)]); err != nil || n != 16 {
		return [16]byte{}
	}
	return id
}
