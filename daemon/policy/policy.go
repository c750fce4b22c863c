// Package policy has the access policy that is in force, by its file, and logs refusals.
// Package access decides by it. Start reading at [File].
package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// File is the access policy as last read from its file.
type File struct {
	path    string
	log     *slog.Logger
	Current atomic.Pointer[access.Policy]
	seen    atomic.Pointer[fs.FileInfo] // of the file when it was read; nil if it was not found
}

// Open reads a policy file. With an *access.Fault the File gives access only to root and bakeryd's own user, until
// Reload reads a valid file: if bakeryd ended, commands under its locks would run on while other hosts take the locks.
func Open(path string, log *slog.Logger) (*File, error) {
	p := &File{path: path, log: log}
	return p, p.read()
}

// Reload reads the file again. If it is invalid, Reload logs that and the previous policy stays in
// force. Holds and waits continue whatever the file says.
func (p *File) Reload() {
	if err := p.read(); err != nil {
		p.Complain(err)
	}
}

// Complain logs that the file, as last read, has a fault.
func (p *File) Complain(err error) {
	if p.Current.Load().InForce() {
		p.log.Error("reloading the policy failed, the previous one stays in force", "err", err)
		return
	}
	p.log.Error("only root and bakeryd's own user may take locks until the policy is fixed and reloaded: systemctl reload bakeryd", "err", err)
}

// Valid reports whether the file, as last read, is in force.
func (p *File) Valid() bool { return p.Current.Load().Fault == nil }

// Path returns the path of the file.
func (p *File) Path() string { return p.path }

// Changed reports whether the file is another one than was read. It may block, like any look at a file.
func (p *File) Changed() bool {
	now, err := os.Stat(p.path)
	seen := p.seen.Load()
	switch {
	case err != nil || seen == nil:
		return (err == nil) != (seen != nil)
	}
	return !os.SameFile(now, *seen) || !now.ModTime().Equal((*seen).ModTime()) || now.Size() != (*seen).Size()
}

// maxUnknown limits the unknown users and groups that are logged one by one.
const maxUnknown = 20

func (p *File) read() error {
	policy, err := p.parse()
	if fault, ok := errors.AsType[*access.Fault](err); ok {
		fault.Read = time.Now()
		p.Current.Store(p.Current.Load().Faulty(fault))
		return fault
	}
	for i, who := range policy.Unknown {
		if i == maxUnknown {
			p.log.Warn("more lines of the policy allow nothing", "lines", len(policy.Unknown)-i)
			break
		}
		p.log.Warn("a line of the policy allows nothing until the policy is reloaded: create the user or group, or give its number", "line", who)
	}
	p.Current.Store(policy)
	p.log.Info("policy in force", "path", p.path, "rules", policy.Lines)
	return nil
}

// parse returns the policy of the file, or an *access.Fault.
func (p *File) parse() (*access.Policy, error) {
	p.seen.Store(nil)
	if info, err := os.Stat(p.path); err == nil {
		p.seen.Store(&info)
	}
	lines, err := readPolicy(p.path)
	if err != nil {
		return nil, &access.Fault{Path: p.path, Err: text.WithoutPath(err)}
	}
	return access.Parse(p.path, lines, access.Names{User: findUser, Group: findGroup})
}

// readPolicy reads a file that only root and bakeryd's own user can change or replace. It follows
// symbolic links.
func readPolicy(path string) ([]byte, error) {
	// O_NONBLOCK: do not wait for the other end of a FIFO.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file: give --policy-file the path of one")
	}
	if err := guarded("", info); err != nil {
		return nil, err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(target)} {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		if err := guarded("its directory "+dir+" ", info); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, access.MaxSize+1))
}

// guarded returns an error unless only root and bakeryd's own user can write to a file.
func guarded(what string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case !ok:
		return fmt.Errorf("%shas no known owner", what)
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%sbelongs to uid %d, which could write to it: chown root", what, stat.Uid)
	case mode&0o022 != 0:
		return fmt.Errorf("%shas mode %04o, so others can write to it: chmod go-w", what, mode)
	}
	return nil
}

func findUser(name string) (int, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, unprefixed(err, user.UnknownUserError(name))
	}
	return strconv.Atoi(u.Uid)
}

func findGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, unprefixed(err, user.UnknownGroupError(name))
	}
	return strconv.Atoi(g.Gid)
}

// unprefixed returns the error without the name, which the caller adds.
func unprefixed(err, unknown error) error {
	if errors.Is(err, unknown) {
		return errors.New("not known on this host")
	}
	return err
}

// Every refusal is logged. The first refusalsLogged of a user within refusalsSpan are logged one by
// one, the others at the end of the span together. Therefore a user that repeats a request does not
// fill the log.
const (
	refusalsSpan   = time.Minute // from the first refusal of any user on
	refusalsLogged = 10
	refusedUsers   = 256 // users with separate records; all others of a span share that of otherUsers
	otherUsers     = math.MinInt
)

// Refusals are the refusals of a server.
type Refusals struct {
	log *slog.Logger

	mu    sync.Mutex       // guards the rest
	users map[int]*refused // of the current span, by uid
}

// NewRefusals returns the refusals of a server that logs to log.
func NewRefusals(log *slog.Logger) *Refusals {
	return &Refusals{log: log, users: map[int]*refused{}}
}

// refused is the record of one user's refusals in a span.
type refused struct {
	name     func() string // of the user
	logged   int
	unlogged int
	last     access.Refusal // of the unlogged ones
}

// Note logs a refusal when it is due, and sets the user's name.
func (rs *Refusals) Note(no *access.Refusal) {
	rs.mu.Lock()
	name := rs.of(no.Caller.UID).name
	rs.mu.Unlock() // a remote user database may be slow
	no.SetUser(name())
	rs.mu.Lock()
	of := rs.of(no.Caller.UID)
	log := of.logged < refusalsLogged
	if log {
		of.logged++
	} else {
		of.unlogged++
		of.last = *no
	}
	rs.mu.Unlock()
	if log {
		rs.warn("access refused", no)
	}
}

// of returns the record of a user. Called with mu held.
func (rs *Refusals) of(uid int) *refused {
	if len(rs.users) == 0 {
		time.AfterFunc(refusalsSpan, rs.Flush)
	}
	if rs.users[uid] == nil && len(rs.users) >= refusedUsers {
		uid = otherUsers
	}
	of := rs.users[uid]
	if of == nil {
		of = &refused{name: sync.OnceValue(func() string { return userName(uid) })}
		rs.users[uid] = of
	}
	return of
}

// Flush ends the span: it logs the refusals that were not logged one by one.
func (rs *Refusals) Flush() {
	rs.mu.Lock()
	all := rs.users
	rs.users = map[int]*refused{}
	rs.mu.Unlock()
	for _, of := range all {
		if of.unlogged > 0 {
			rs.warn("access refused repeatedly, this is the last refusal", &of.last, "times", of.unlogged)
		}
	}
}

func (rs *Refusals) warn(message string, no *access.Refusal, more ...any) {
	attrs := []any{"uid", no.Caller.UID, "gid", no.Caller.GID, "pid", no.Caller.PID, "action", no.Action}
	if no.User != "" {
		attrs = append(attrs, "user", no.User)
	}
	if no.Lock != "" {
		attrs = append(attrs, "lock", no.Lock)
	}
	rs.log.Warn(message, append(append(attrs, "reason", no.Reason), more...)...)
}

// userName returns a user's name, for display; empty if none.
func userName(uid int) string {
	if uid < 0 {
		return ""
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}
