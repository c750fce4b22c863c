package sanlock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/peer"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/statefile"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// conn is one connection. It executes one command at a time.
type conn struct {
	*Server
	sock   *net.UnixConn
	caller Caller
	// nil until it is registered; set by the goroutine of the connection, or before that runs
	client *registry.Client
	deaf   bool  // restricted to no command at all
	joined *term // in which a command is executed that needs one; nil if there is none
	// of a connection that is kept for the next process: bytes of the current request that are still in the socket
	pending int
	again   bool // the previous process may have executed the next request, and did not answer it
}

func (s *Server) newConn(sock *net.UnixConn) *conn {
	return &conn{Server: s, sock: sock, caller: callerOf(sock)}
}

// serve answers commands until the client closes its end, or breaks the protocol.
func (c *conn) serve() {
	defer c.close()
	for !c.deaf {
		req, err := c.next()
		var bad *wire.Error
		switch {
		case errors.As(err, &bad) && !bad.Fatal:
			c.log.Warn("invalid command on the sanlock socket", "pid", c.caller.Process.PID, "err", err)
			if bad.Code != wire.OK && !c.answer(bad.Header, failed(bad.Code)) {
				return
			}
			continue
		case err != nil:
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
				c.log.Warn("closing a connection to the sanlock socket", "pid", c.caller.Process.PID, "err", err)
			}
			return
		}
		if !c.execute(req) {
			return
		}
	}
	_, _ = io.Copy(io.Discard, c.sock) // until the client ends
}

// next reads a request. On a connection that is kept for the next process, it leaves the request in the socket: a process
// that is killed then leaves it to the next one, whole.
func (c *conn) next() (*wire.Request, error) {
	if c.client == nil || c.cfg.Keep == nil {
		return wire.Read(c.sock)
	}
	text, err := peer.Peek(c.sock, wire.MaxMessage, wire.Length)
	if err != nil {
		return nil, err
	}
	req, err := wire.Read(bytes.NewReader(text))
	c.pending = len(text)
	if err != nil {
		c.consume()
	}
	return req, err
}

// consume takes the current request out of the socket.
func (c *conn) consume() {
	if c.pending > 0 {
		_, _ = io.CopyN(io.Discard, c.sock, int64(c.pending))
		c.pending = 0
	}
}

// executed reports whether the previous process has executed an acquire that it did not answer.
func (c *conn) executed(req *wire.Request) bool {
	if !c.again || req.Command != wire.Acquire {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(req.Resources, func(r wire.Resource) bool {
		_, code := c.reg.Has(c.client, keyOf(r))
		return code != wire.OK
	})
}

// executedAgain returns the answer to a request that the previous process may have executed already.
func executedAgain(req *wire.Request, a answer) answer {
	switch {
	case req.Command == wire.Release && a.code == -1, req.Command == wire.Convert && a.code == wire.Errno(syscall.EALREADY):
		return answer{}
	case req.Command == wire.Acquire && a.code == wire.AcquireIdlive: // by a grant that was not recorded, and is being released
		return failed(wire.Errno(syscall.EAGAIN))
	}
	return a
}

// enter counts a command that Close must wait for. It returns false once the server ends.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.executing++
	return true
}

func (s *Server) leaves() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.executing--; s.executing == 0 {
		s.change()
	}
}

// close ends the connection. Of a registered client, that is the end.
func (c *conn) close() {
	if c.client != nil {
		c.gone(c.client)
	}
	_ = c.sock.Close()
}

// answer answers a request. It returns false if the connection is broken.
func (c *conn) answer(to wire.Header, a answer) bool {
	if to.Command == wire.ReadResource && a.body == nil {
		a.body = make([]byte, wire.ResourceSize) // the client reads it also after an error
	}
	_, err := c.sock.Write(wire.Answer{Command: to.Command, Flags: to.Flags, Seq: to.Seq, Data2: a.data, Result: a.code, Body: a.body}.Append(nil))
	return err == nil
}

// command is how a command is executed.
type command struct {
	do     func(*conn, *wire.Request) answer
	member bool // it needs this host to be in the bakery lockspace
	space  bool // it needs a sanlock lockspace, and there is none when the lease is lost
	last   bool // sanlock closes the connection after it
}

// answer is the outcome of a command.
type answer struct {
	code  wire.Code
	data  uint32
	body  []byte
	later bool // bakeryd ends: the next process answers
}

// settled saves the outcome of a command. If bakeryd ends before it is saved, the next process executes the request
// again: it is still in the socket.
func (c *conn) settled(a answer) answer {
	a.later = errors.Is(c.save(), statefile.ErrEnded)
	return a
}

// failed is an outcome that is an error.
func failed(code wire.Code) answer { return answer{code: code} }

var commands map[wire.Command]command

func init() { // a command may look at the table
	commands = map[wire.Command]command{
		wire.Register:           {do: (*conn).register},
		wire.Restrict:           {do: (*conn).restrict},
		wire.Killpath:           {do: (*conn).killpath},
		wire.Version:            {do: (*conn).version},
		wire.AddLockspace:       {do: (*conn).addLockspace, member: true},
		wire.RemLockspace:       {do: (*conn).remLockspace},
		wire.InqLockspace:       {do: (*conn).inqLockspace},
		wire.GetLockspaces:      {do: (*conn).getLockspaces, last: true},
		wire.GetHosts:           {do: (*conn).getHosts, member: true, last: true},
		wire.SetConfig:          {do: (*conn).setConfig, last: true},
		wire.Acquire:            {do: (*conn).acquire, member: true, space: true},
		wire.Release:            {do: (*conn).releaseCmd},
		wire.Inquire:            {do: (*conn).inquire},
		wire.Convert:            {do: (*conn).convert, member: true, space: true},
		wire.SetLVB:             {do: (*conn).setLVB, member: true, space: true},
		wire.GetLVB:             {do: (*conn).getLVB, member: true, space: true},
		wire.Align:              {do: (*conn).align, member: true},
		wire.ReadLockspace:      {do: (*conn).readLockspace, member: true},
		wire.WriteLockspace:     {do: (*conn).writeLockspace, member: true},
		wire.ReadResource:       {do: (*conn).readResource, member: true},
		wire.WriteResource:      {do: (*conn).writeResource, member: true},
		wire.ReadResourceOwners: {do: (*conn).readOwners, member: true},
		wire.Status:             {do: (*conn).status, last: true},
		wire.HostStatus:         {do: (*conn).hostStatus, member: true, last: true},
	}
}

// execute executes a command and answers it. It returns false if the connection is over.
func (c *conn) execute(req *wire.Request) bool {
	cmd, known := commands[req.Command]
	a := answer{}
	select {
	case <-c.begun: // what the previous process left is known
	case <-c.ended:
		return false
	}
	if !c.enter() {
		return false
	}
	defer c.leaves()
	if c.joined = nil; cmd.member {
		c.joined = c.current()
	}
	switch {
	case !known:
		c.log.Warn("command of the sanlock socket refused: bakeryd does not have it", "command", req.Command.String(), "pid", c.caller.Process.PID)
		a.code = wire.Errno(syscall.EOPNOTSUPP)
	case !req.IsUTF8():
		c.log.Warn("command of the sanlock socket refused: a name, path or argument in it is not UTF-8", "command", req.Command.String(), "pid", c.caller.Process.PID)
		a.code = wire.Errno(syscall.EINVAL)
	case cmd.member && c.joined == nil: // it is joining again
		if a.code = wire.Errno(syscall.EAGAIN); cmd.space {
			a.code = wire.Errno(syscall.ENOSPC)
		}
	case c.executed(req):
	default:
		a = cmd.do(c, req)
	}
	if a.later {
		return false
	}
	if c.again {
		a, c.again = executedAgain(req, a), false
	}
	c.consume()
	if a.code < 0 {
		c.log.Debug("command of the sanlock socket refused", "command", req.Command.String(), "pid", c.caller.Process.PID, "result", a.code.String())
	}
	if req.Command == wire.Register {
		return c.client != nil // it has no answer
	}
	return c.answer(req.Header, a) && !cmd.last
}

// allowed returns EACCES if the policy does not let the caller take a lock. A user that may take the locks of
// host ids of a lockspace may do what ends the holds of others in it.
func (c *conn) allowed(lock string) wire.Code {
	if err := c.cfg.May(c.caller, lock); err != nil {
		return c.lockCode(err)
	}
	return wire.OK
}

// current returns the term of membership, nil if there is none or its lease is lost.
func (s *Server) current() *term {
	s.mu.Lock()
	t := s.term
	s.mu.Unlock()
	if t == nil || t.over() {
		return nil
	}
	return t
}

// register makes the process that has connected a client. One that the previous process served, and whose connection
// was not kept, continues with what it has.
func (c *conn) register(*wire.Request) answer {
	if c.client != nil || c.caller.Process.PID == 0 {
		return failed(wire.Errno(syscall.EINVAL))
	}
	c.mu.Lock()
	for _, former := range c.reg.All() {
		if former.Process == c.caller.Process && c.conns[former.ID] == nil {
			c.client = former
			break
		}
	}
	if c.client == nil {
		c.client = &registry.Client{Process: c.caller.Process, UID: c.caller.UID, GID: c.caller.GID, Groups: c.caller.Groups,
			Name: strconv.Itoa(c.caller.Process.PID)}
		c.reg.Register(c.client)
	}
	if c.conns[c.client.ID] = c; c.cfg.Keep != nil {
		c.client.Kept = "sanlock-" + api.NewSessionID()
	}
	c.mu.Unlock()
	_ = c.save() // repeated with what it acquires
	if c.cfg.Keep != nil {
		_ = peer.Control(c.sock, func(fd int) { c.cfg.Keep(c.client.Kept, fd) })
	}
	return answer{}
}

func (c *conn) restrict(req *wire.Request) answer {
	c.deaf = req.Flags&wire.RestrictAll != 0 // libvirt does that for qemu
	if c.client == nil {
		return answer{}
	}
	c.mu.Lock()
	c.client.Restrict = req.Flags
	c.mu.Unlock()
	return c.saved()
}

func (c *conn) killpath(req *wire.Request) answer {
	if c.client == nil {
		return failed(wire.Errno(syscall.EBUSY))
	}
	args := req.KillArgs
	if req.Flags&wire.KillpathPID != 0 {
		args += " " + strconv.Itoa(c.client.Process.PID)
	}
	c.mu.Lock()
	c.client.KillPath, c.client.KillArgs = req.KillPath, args
	c.mu.Unlock()
	return c.saved()
}

// saved saves the registry, and returns the answer.
func (c *conn) saved() answer {
	if c.save() != nil {
		return failed(wire.Errno(syscall.EIO))
	}
	return answer{}
}

const apiVersion = 3<<24 | 8<<16 | 5<<8 // the version of sanlock that this package follows

func (c *conn) version(*wire.Request) answer { return answer{data: apiVersion} }

// begin returns the client that a command is for, marked as busy with it: that of the connection, or of a
// process that the request names. Only root and the client's own user may name another one.
func (c *conn) begin(req *wire.Request) (*registry.Client, wire.Code) {
	other := int(int32(req.Data2))
	client, code := c.target(other)
	if code == wire.OK {
		c.mu.Lock()
		defer c.mu.Unlock()
		return client, client.Begin(req.Command)
	}
	if code == wire.Errno(syscall.EPERM) {
		c.log.Warn("a client of the sanlock socket named a process of another user", "command", req.Command.String(),
			"pid", c.caller.Process.PID, "user", c.caller.UID, "of_pid", other)
	}
	return nil, code
}

func (c *conn) target(pid int) (*registry.Client, wire.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch client := c.reg.ByPID(pid); {
	case pid == -1 && c.client == nil:
		return nil, wire.Errno(syscall.EBUSY)
	case pid == -1:
		return c.client, wire.OK
	case client == nil:
		return nil, wire.Errno(syscall.ESRCH)
	case c.caller.UID != 0 && c.caller.UID != client.UID:
		return nil, wire.Errno(syscall.EPERM)
	default:
		return client, wire.OK
	}
}

// end marks a client as not busy any more.
func (s *Server) end(client *registry.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client.Active = 0
	if client.Killing && len(s.reg.Of(client.ID)) == 0 {
		client.Killing = false // it has released all
	}
	s.change()
}

// gone removes a client that has ended, and releases what no other one has.
func (s *Server) gone(client *registry.Client) {
	select {
	case <-s.ended:
		return // the next process sees it
	default:
	}
	s.mu.Lock()
	for client.Active != 0 { // a command that another connection sent for it
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.ended:
			return
		}
		s.mu.Lock()
	}
	if s.reg.Clients[client.ID] == nil {
		s.mu.Unlock()
		return
	}
	delete(s.conns, client.ID)
	release := s.reg.Gone(client.ID)
	s.change()
	s.mu.Unlock()
	if s.cfg.Drop != nil {
		s.cfg.Drop(client.Kept)
	}
	s.letGoAll(release, "its client has ended")
	_ = s.save()
}
