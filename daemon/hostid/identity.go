// Package hostid is one host's identity in a lockspace: its name, machine id and boot id, the lock files that keep two processes
// of this machine from using one host id, and the files that outlive the process and the boot.
package hostid

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

// ErrTaken is returned when another process of this machine has the host id.
var ErrTaken = errors.New("another process on this machine has the host id")

// Identity is what this host says of itself, and what it keeps of itself in
// files, for one lockspace.
type Identity struct {
	UUID       layout.UUID
	Name       string
	machine    [16]byte
	boot       [16]byte
	RuntimeDir string // directory of lock files: gone after a reboot, as the locks are
	StateDir   string // directory of what outlives a reboot

	mu    sync.Mutex       // guards files
	files map[int]*os.File // lock files held, by host id
}

// Options say who this host is, and where it keeps its files.
type Options struct {
	Name       string // empty: the host name
	MachineID  [16]byte
	BootID     [16]byte
	RuntimeDir string // empty: /run/bakery for root, else below XDG_RUNTIME_DIR
	StateDir   string // empty: /var/lib/bakery for root, else below XDG_STATE_HOME
}

// New returns the identity in a lockspace. It makes the directories. It returns ErrInvalid for a name that is
// none, and the errors of making directories.
func New(cfg Options, uuid layout.UUID) (*Identity, error) {
	id := &Identity{files: map[int]*os.File{}, UUID: uuid, Name: cfg.Name, machine: cfg.MachineID, boot: cfg.BootID}
	if id.Name == "" {
		id.Name, _ = os.Hostname()
	}
	if cfg.Name == "" && len(id.Name) > layout.MaxName {
		id.Name = id.Name[:layout.MaxName]
	}
	if err := layout.ValidateHostName(id.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	var err error
	if id.RuntimeDir, err = privateDir(cfg.RuntimeDir, "/run/bakery", "XDG_RUNTIME_DIR"); err != nil {
		return nil, err
	}
	id.StateDir, err = privateDir(cfg.StateDir, "/var/lib/bakery", "XDG_STATE_HOME")
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

func (id *Identity) Record() layout.HostRecord {
	return layout.HostRecord{Name: id.Name, MachineID: id.machine, BootID: id.boot}
}

// Claim takes the lock file of a host id of this lockspace. It is held until
// the process ends, and so also while a write of it is stuck in the kernel:
// a successor never writes past that one. It returns ErrTaken.
func (id *Identity) Claim(host int) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.files[host] != nil {
		return nil
	}
	path := filepath.Join(id.RuntimeDir, fmt.Sprintf("%s-%d.lock", id.UUID, host))
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("open the lock file of host id %d: %w", host, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("%w %d (lock file %s)", ErrTaken, host, path)
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

// Release gives the lock files back: when no write is under way any more.
func (id *Identity) Release() {
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, f := range id.files {
		_ = os.Remove(f.Name()) // while it is locked, so it is nobody else's
		f.Close()
	}
	clear(id.files)
}

// Abandon gives the lock files to the next process, as the end of this one does, and holds files in another directory
// instead: tests of a restart within one process need that.
func (id *Identity) Abandon(dir string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	for host, f := range id.files {
		other, err := os.CreateTemp(dir, "lock")
		if err = errors.Join(err, os.Remove(f.Name()), f.Close()); err != nil {
			return err
		}
		id.files[host] = other
	}
	return nil
}

// LeftFile keeps the incarnation that last left a host id of this lockspace in
// good time: who knows it may take the id again without waiting for late writes.
func (id *Identity) LeftFile(host string) string {
	return filepath.Join(id.StateDir, fmt.Sprintf("%s-%s.left", id.UUID, host))
}

func (id *Identity) Left() (incarnations []uint64) {
	paths, _ := filepath.Glob(filepath.Join(GlobQuote(id.StateDir), fmt.Sprintf("%s-*.left", id.UUID)))
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

// KeepLeft fails silently: without the file the next join takes longer.
func (id *Identity) KeepLeft(host int, incarnation uint64) {
	if incarnation == 0 {
		return
	}
	path := id.LeftFile(strconv.Itoa(host))
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
func (id *Identity) hadFile(host string) string {
	return filepath.Join(id.StateDir, fmt.Sprintf("%s-%s.joined", id.UUID, host))
}

// Had returns the host ids that this machine had.
func (id *Identity) Had() (hosts []int) {
	paths, _ := filepath.Glob(filepath.Join(GlobQuote(id.StateDir), fmt.Sprintf("%s-*.joined", id.UUID)))
	for _, path := range paths {
		host := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), id.UUID.String()+"-"), ".joined")
		if n, err := strconv.Atoi(host); err == nil {
			hosts = append(hosts, n)
		}
	}
	return hosts
}

// KeepHad ignores errors: without the file only an operator can have an unreadable record of this id taken.
func (id *Identity) KeepHad(host int) {
	if f, err := os.OpenFile(id.hadFile(strconv.Itoa(host)), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		f.Close()
	}
}

// EventsFile keeps what has happened on a host id of this lockspace.
func (id *Identity) EventsFile(host int) string {
	return filepath.Join(id.StateDir, fmt.Sprintf("%s-%d.events", id.UUID, host))
}

// MachineID and bootID are zero where the system has none.
func MachineID() [16]byte { return idFile("/etc/machine-id") }

func BootID() [16]byte { return idFile("/proc/sys/kernel/random/boot_id") }

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

func GlobQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
