// Package sanlock serves the socket of sanlock: lvmlockd, libvirt and vdsm, which reach their lock manager only
// by libsanlock_client, run on the locks of a bakery lockspace. CONFORMANCE.md lists the commands, what each does
// here, and what differs from sanlock 3.8.5.
//
// A sanlock lockspace is a prefix of lock names: resource RES of lockspace LS is the lock sanlock/LS/RES, and a
// host that is in LS with id N holds sanlock/LS/host/N; the token of that hold is its generation.
//
// The files by topic: server.go has the server, conn.go a connection and its commands; spaces.go joins and leaves
// lockspaces; resources.go acquires and releases, modes.go converts and has value blocks, areas.go reads and writes
// the callers' disks; term.go has the holds of one term of membership, and finds those of the previous process; kill.go
// stops the clients of a lockspace that ends; status.go is for people.
package sanlock

import (
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/statefile"
	"github.com/bakeryd/bakeryd/daemon/tasks"
)

// Config is the configuration of a server.
type Config struct {
	Log   *slog.Logger
	Clock clock.Clock
	// May returns nil if a user may take a lock.
	May func(caller Caller, lock string) error
	// Keep has the supervisor of this process keep the connection with a descriptor for the next one, under a name; Drop
	// ends that. Both are nil if connections end with this process.
	Keep func(name string, fd int)
	Drop func(name string)
}

// Caller is the process at the other end of a connection, as the kernel knows it.
type Caller struct {
	Process  process.ID
	UID, GID int
	Groups   []int
}

// Server serves the socket of sanlock. It is safe for concurrent use.
type Server struct {
	cfg   Config
	log   *slog.Logger
	tasks tasks.Group
	begun chan struct{} // closed when the first term has begun
	ended chan struct{} // closed by Close
	state *statefile.Writer

	mu        sync.Mutex // guards the rest, and the registry
	reg       *registry.Registry
	term      *term               // nil while this host is not in the bakery lockspace
	closing   bool                // no command begins
	executing int                 // number of commands
	users     map[int]int         // number of connections by user
	conns     map[int]*conn       // by the id of their client
	kept      map[string]*os.File // connections of the previous process that no client has yet
	changed   chan struct{}       // closed and replaced when a client, a resource or a lockspace has gone
}

// New returns a server. kept has the connections that the previous process had, by the name that it gave to
// Config.Keep.
func New(cfg Config, kept map[string]*os.File) *Server {
	s := &Server{cfg: cfg, log: cfg.Log, begun: make(chan struct{}), ended: make(chan struct{}),
		reg: registry.New(), conns: map[int]*conn{}, users: map[int]int{}, kept: kept, changed: make(chan struct{})}
	if s.kept == nil {
		s.kept = map[string]*os.File{}
	}
	s.state = statefile.New(s.snapshot, s.ended, cfg.Log)
	return s
}

// maxConns limits the connections, against a client that leaks them.
const maxConns = 1000

// Serve accepts connections until the listener is closed.
func (s *Server) Serve(ln net.Listener) error {
	room := make(chan struct{}, maxConns)
	for {
		c, err := ln.Accept()
		if err != nil {
			select {
			case <-s.ended:
				return nil
			default:
				return err
			}
		}
		select {
		case room <- struct{}{}:
		default:
			s.log.Warn("too many clients of the sanlock socket, closing a connection", "limit", maxConns)
			_ = c.Close()
			continue
		}
		s.tasks.Go(func() {
			defer func() { <-room }()
			conn := s.newConn(c.(*net.UnixConn))
			if !s.admit(conn.caller.UID) {
				_ = c.Close()
				return
			}
			defer s.dismiss(conn.caller.UID)
			conn.serve()
		})
	}
}

// admit counts a connection of a user. It returns false if root's own would find no place: lvmlockd opens one for each call.
func (s *Server) admit(uid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid != 0 && s.users[uid] >= maxConns/4 {
		return false
	}
	s.users[uid]++
	return true
}

func (s *Server) dismiss(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[uid]--
}

// Close ends the server and all its connections, once the commands that are under way are answered or left for the next
// process. Holds that were not released stay as they are in the bakery lockspace.
func (s *Server) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	close(s.ended)
	for give := time.After(time.Second); ; {
		s.mu.Lock()
		idle, changed, conns := s.executing == 0, s.changed, slices.Collect(maps.Values(s.conns))
		s.mu.Unlock()
		if !idle {
			select {
			case <-changed:
				continue
			case <-give: // a disk hangs
			}
		}
		for _, c := range conns {
			_ = c.sock.Close()
		}
		return
	}
}

// callerOf returns the process that has connected; none if that has ended, even if another one has its number.
func callerOf(sock *net.UnixConn) Caller {
	pid, uid, gid := peer.Credentials(sock)
	c := Caller{UID: uid, GID: gid, Groups: peer.Groups(sock)}
	id, err := process.Of(pid)
	if err == nil && uid != 0 {
		var same bool
		if same, err = id.RunsAs(uid); !same {
			return c
		}
	}
	if err == nil {
		c.Process = id
	}
	return c
}

// change notifies those that wait for the end of something. Called with mu held.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// save returns once the state file has what the registry has now: before a client learns of it. If it cannot be
// written, save returns an error, and it is written later. After Close it changes nothing: a command that Close interrupts
// has its outcome from the next process.
func (s *Server) save() error { return s.state.Save() }

// snapshot returns the content of the state file and its path, empty while there is none.
func (s *Server) snapshot() (path string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term != nil {
		path = s.term.path
	}
	return path, s.reg.Save()
}
