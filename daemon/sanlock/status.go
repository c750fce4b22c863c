package sanlock

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// spaces returns the lockspaces by name. Called with mu held.
func (s *Server) spaces() []*registry.Space {
	return slices.SortedFunc(maps.Values(s.reg.Spaces), func(a, b *registry.Space) int { return cmp.Compare(a.Name, b.Name) })
}

// status answers `sanlock client status`: this daemon, its clients, lockspaces and resources. A text after each has
// the details that sanlock shows with -D, as far as they exist here.
func (c *conn) status(req *wire.Request) answer {
	var out []byte
	host, _ := os.Hostname()
	now := c.cfg.Clock.Now() / time.Second
	daemonName, id := "bakeryd."+host, 0
	if t := c.current(); t != nil {
		id = t.host.Member().ID()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out = wire.AppendState(out, wire.State{Type: wire.StateDaemon, Name: daemonName,
		Text: fmt.Sprintf("our_host_name=%s bakery_host_id=%d monotime=%d version_hex=%08x", daemonName, id, now, apiVersion)})
	if req.Data == wire.StateDaemon {
		return answer{body: out}
	}
	for _, cl := range c.reg.All() {
		out = wire.AppendState(out, wire.State{Type: wire.StateClient, Data32: uint32(cl.Process.PID), Name: cl.Name,
			Text: fmt.Sprintf("ci=%d pid=%d restricted=%x cmd_active=%d killing=%t connected=%t", cl.ID, cl.Process.PID, cl.Restrict, cl.Active, cl.Killing, c.conns[cl.ID] != nil)})
	}
	if req.Data == wire.StateClient {
		return answer{body: out}
	}
	for _, space := range c.spaces() {
		list := map[registry.State]string{registry.Adding: "add", registry.Removing: "rem"}[space.State]
		st := wire.State{Type: wire.StateLockspace, Data64: space.HostID, Name: space.Name,
			Text: fmt.Sprintf("list=%s io_timeout=%d sector_size=%d host_generation=%d killing_pids=%t used_by_orphans=%t", cmp.Or(list, "spaces"), space.IOTimeout,
				sectorSize(space.Flags), space.Hold.Token, space.Dead, space.UsedByOrphans)}
		out = wire.AppendLockspace(wire.AppendState(out, st), space.Lockspace)
	}
	if req.Data == wire.StateLockspace {
		return answer{body: out}
	}
	for _, res := range c.resources() {
		out = c.appendResource(out, res)
	}
	return answer{body: out}
}

// resources returns all resources, by lockspace and name. Called with mu held.
func (s *Server) resources() (all []*registry.Resource) {
	for _, space := range s.spaces() {
		all = append(all, s.reg.In(space.Name)...)
	}
	return all
}

// appendResource appends a state for each user of a resource, and one for an orphan.
func (c *conn) appendResource(out []byte, res *registry.Resource) []byte {
	list := res.State.String()
	pids := []int{0}
	if res.Orphan() {
		list = "orphan"
	} else {
		pids = nil
		for _, id := range res.Users {
			pids = append(pids, c.reg.Clients[id].Process.PID)
		}
	}
	what := res.Resource
	what.Disks = what.Disks[:min(len(what.Disks), 3)] // the buffer of sanlock's program has no room for four
	what.NumDisks = uint32(len(what.Disks))
	body := wire.AppendResource(nil, what)
	for _, d := range what.Disks {
		body = wire.AppendDisk(body, d)
	}
	for _, pid := range pids {
		st := wire.State{Type: wire.StateResource, Data32: uint32(pid), Data64: res.Lver, Name: res.Name,
			Text: fmt.Sprintf("list=%s flags=%x lver=%d persistent=%t", list, res.Flags, res.Lver, res.Persistent)}
		out = append(wire.AppendState(out, st), body...)
	}
	return out
}

// hostStatus answers `sanlock client host_status`.
func (c *conn) hostStatus(req *wire.Request) answer {
	l := req.Lockspace
	l.HostID = 0
	found, code := c.hostsOf(l)
	a := answer{code: code}
	for _, h := range found {
		a.body = wire.AppendState(a.body, wire.State{Type: wire.StateHost, Data32: uint32(h.ID), Data64: h.Timestamp,
			Text: fmt.Sprintf("owner_id=%d owner_generation=%d timestamp=%d io_timeout=%d flags=%x", h.ID, h.Generation, h.Timestamp, h.IOTimeout, h.Flags)})
	}
	return a
}
