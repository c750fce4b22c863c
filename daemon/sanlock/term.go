package sanlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/sanlock/area"
	"github.com/bakeryd/bakeryd/daemon/sanlock/hosts"
	"github.com/bakeryd/bakeryd/daemon/sanlock/killing"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/layout"
)

// Host is what the server needs of this host while it is in the bakery lockspace.
type Host interface {
	LockManager() *locks.Manager
	Sessions() *session.Table
	Member() *membership.Member
	Superblock() layout.Superblock
	RuntimeDir() string
	Drained() <-chan struct{} // closed when all holders must stop because the host leaves
}

// term is one term of membership.
type term struct {
	host   Host
	path   string // of the state file
	areas  *area.Areas
	holds  map[string]*session.Own // by session; guarded by mu of the server
	ending bool                    // its lockspaces end; guarded by mu of the server
	hosts  *hosts.View
}

func (t *term) over() bool { return t.host.Member().IsOver() || t.host.Member().Moments().Lost }

// ownCommand begins what is shown as the command of a hold.
const ownCommand = "sanlock client"

// take requests a lock without waiting for other holders, or continues a hold if there is a token. It returns
// the errors of a request to bakeryd.
func (t *term) take(lock string, mode layout.Mode, client *registry.Client, again registry.Hold, by Caller, may func(string) error) (*session.Own, error) {
	req := api.LockRequest{Name: lock, Mode: mode, NonBlock: true, Session: again.Session, Token: again.Token, NoLinger: true, Command: ownCommand}
	if client != nil {
		req.PID, req.Command = client.Process.PID, ownCommand+" "+client.Name
	}
	return t.host.Sessions().Take(req, session.Client{UID: by.UID, May: may})
}

// idOf returns the name of a hold.
func idOf(h *session.Own) registry.Hold { return registry.Hold{Session: h.ID, Token: h.Token()} }

// keep makes a hold known. Called with mu of the server held, or before clients are served.
func (t *term) keep(h *session.Own) { t.holds[h.ID] = h }

// holdOf returns a hold by its name; nil if it is not of the current term.
func (s *Server) holdOf(id registry.Hold) *session.Own {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == nil {
		return nil
	}
	return s.term.holds[id.Session]
}

// release releases a hold. It returns when that is durable.
func (s *Server) release(id registry.Hold) {
	h := s.holdOf(id)
	if h == nil {
		return
	}
	h.Leave()
	s.mu.Lock()
	if s.term != nil {
		delete(s.term.holds, id.Session)
	}
	s.mu.Unlock()
}

// StateSuffix is the end of the name of a state file.
const StateSuffix = ".sanlock"

// StatePath returns the path of the state file of a host of a bakery lockspace.
func StatePath(dir string, uuid layout.UUID, host int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d%s", uuid, host, StateSuffix))
}

// Begin begins a term of membership. The first one continues what the previous process had before it returns; no client
// is served before. It must not take longer than a lease, or the holds are given up.
func (s *Server) Begin(h Host) {
	t := &term{host: h, path: StatePath(h.RuntimeDir(), h.Superblock().UUID, h.Member().ID()), areas: area.New(area.Config{UUID: h.Superblock().UUID}),
		holds: map[string]*session.Own{}, hosts: hosts.New(h.LockManager(), h.Member(), h.Superblock().Lease)}
	first := s.kept != nil
	var proceed func()
	if first {
		proceed = s.resume(t)
	}
	s.mu.Lock()
	before := s.term
	s.term = t
	s.mu.Unlock()
	if before != nil && before.path != t.path { // it had another id
		_ = os.Remove(before.path)
	}
	_ = s.save()
	if first {
		proceed()
		close(s.begun)
	}
	s.tasks.Go(func() { s.watch(t) })
}

// load reads a state file. A damaged one is reported, and not used.
func (s *Server) load(path string) *registry.Registry {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		var reg *registry.Registry
		if reg, err = registry.Load(text); err == nil {
			return reg
		}
	}
	s.log.Error("the state of the sanlock socket is not usable: its clients must stop, and start again", "path", path, "err", err)
	return nil
}

// resume continues the holds of the previous process. If one is lost, its users must stop: other hosts may have it.
// resume returns what begins once this is known.
func (s *Server) resume(t *term) func() {
	kept := s.kept
	s.kept = nil
	reg := s.load(t.path)
	if reg == nil {
		reg = registry.New()
	}
	for _, space := range reg.Spaces {
		if !s.resumeHold(t, hosts.Lock(space.Lockspace), layout.Exclusive, space.Hold) && !space.Dead {
			s.log.Error("a lockspace of the sanlock socket is lost: other hosts may have its resources", "lockspace", space.Name)
			space.Dead = true
		}
	}
	var released []*registry.Resource
	for _, res := range reg.Resources {
		held := s.resumeHold(t, hosts.Name(res.Lockspace, res.Name), mode(res.Shared), res.Hold)
		switch {
		case res.Releasing:
			released = append(released, res)
		case held:
			res.EndConvert(t.holds[res.Hold.Session].Mode() == layout.Shared)
		default:
			s.log.Error("a resource of the sanlock socket is lost: other hosts may have it", "resource", res.Key().String())
			if res.Lost = true; !stoppable(reg, res, kept) {
				reg.Drop(res)
			}
			if space := reg.Spaces[res.Lockspace]; space != nil {
				space.Dead = true
			}
		}
	}
	var leave []*registry.Space
	for _, space := range reg.Spaces {
		if space.Dead {
			space.State = registry.Removing
			leave = append(leave, space)
		}
	}
	clients := reg.All()
	if len(clients)+len(reg.Spaces) > 0 {
		s.log.Info("resuming the sanlock socket", "lockspaces", len(reg.Spaces), "resources", len(reg.Resources), "clients", len(clients))
	}
	s.mu.Lock()
	s.reg = reg
	s.mu.Unlock()
	// Those that were granted, and that the state file did not have yet.
	t.host.Sessions().LeaveOwn(func(id, command string) bool { return t.holds[id] == nil && strings.HasPrefix(command, ownCommand) })
	return func() {
		for _, res := range released {
			s.tasks.Go(func() { s.letGo(res, "the previous process was releasing it") })
		}
		for _, space := range leave {
			s.tasks.Go(func() { s.leave(space, killing.Plan{}) })
		}
		for _, c := range clients {
			s.resumeClient(c, kept[c.Kept])
			delete(kept, c.Kept)
		}
		for name, f := range kept { // of clients that are not known
			_ = f.Close()
			if s.cfg.Drop != nil {
				s.cfg.Drop(name)
			}
		}
	}
}

// stoppable reports whether a client has a lost resource that can be stopped for it, or release it. Waiting for another one
// would protect nothing.
func stoppable(reg *registry.Registry, res *registry.Resource, kept map[string]*os.File) bool {
	return slices.ContainsFunc(res.Users, func(id int) bool {
		c := reg.Clients[id]
		return c.Restrict&wire.RestrictSigkill == 0 || kept[c.Kept] != nil
	})
}

// Lost reports whether clients have resources whose locks this host does not hold. Other hosts may have them, so this
// host is not safe until the clients have ended.
func (s *Server) Lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, res := range s.reg.Resources {
		if res.Lost {
			return true
		}
	}
	return false
}

// resumeHold continues a hold of the previous process. It returns false if that is lost.
func (s *Server) resumeHold(t *term, lock string, mode layout.Mode, id registry.Hold) bool {
	h, err := t.take(lock, mode, nil, id, Caller{}, nil)
	if err != nil {
		s.log.Debug("a hold of the previous process does not continue", "lock", lock, "err", err)
		return false
	}
	t.keep(h)
	return true
}

// resumeClient continues with a client of the previous process: on its connection if that was kept, else until
// its process ends.
func (s *Server) resumeClient(client *registry.Client, kept *os.File) {
	sock := peer.Conn(kept)
	if sock == nil {
		s.tasks.Go(func() {
			s.awaitEnd(client)
			s.gone(client)
		})
		return
	}
	c := s.newConn(sock)
	c.client, c.deaf, c.again = client, client.Restrict&wire.RestrictAll != 0, peer.Queued(sock) > 0
	s.mu.Lock()
	s.conns[client.ID] = c
	s.mu.Unlock()
	s.tasks.Go(func() {
		c.serve()
	})
}

// awaitEnd blocks until the process of a client has ended.
func (s *Server) awaitEnd(client *registry.Client) {
	for client.Process.Alive() {
		fd, err := unix.PidfdOpen(client.Process.PID, 0)
		if err != nil { // such as too many descriptors
			time.Sleep(killing.Again)
			continue
		}
		if client.Process.Alive() { // else the number may be another process's by now
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		}
		_ = unix.Close(fd)
	}
}

// watch ends the lockspaces of a term with its lease, or when the host leaves.
func (s *Server) watch(t *term) {
	mem := t.host.Member()
	alarm, err := s.cfg.Clock.NewAlarm()
	if err != nil {
		s.log.Error("no timer, clients of the sanlock socket are stopped only when the lease is lost", "err", err)
	}
	rings := make(chan struct{}, 1)
	if alarm != nil {
		defer alarm.Close()
		go func() {
			for alarm.Wait() == nil {
				select {
				case rings <- struct{}{}:
				default:
				}
			}
		}()
	}
	for {
		m := mem.Moments()
		now := s.cfg.Clock.Now()
		switch {
		case m.Lost || m.Deadline != 0 && now >= m.Warn:
			s.fail(t, m.Deadline, "the lease of this host ends")
			return
		case alarm != nil && m.Warn != 0:
			_ = alarm.Set(m.Warn)
		}
		select {
		case <-rings:
		case <-m.Changed:
		case <-t.host.Drained():
			s.fail(t, now+t.host.Superblock().Lease, "this host leaves the lockspace")
			return
		case <-s.ended:
			return
		}
	}
}

// await blocks until ctx ends or something has changed; it returns false in the first case.
func (s *Server) await(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-ctx.Done():
	case <-s.ended:
	}
	return false
}

func mode(shared bool) layout.Mode {
	if shared {
		return layout.Shared
	}
	return layout.Exclusive
}
