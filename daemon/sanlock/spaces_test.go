package sanlock_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

func TestAddLockspace_ThatFails_SaysWhy(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	h.writeLockspace()
	h.write("x", 1)
	h.write("z", 4)
	add := func(l wire.Lockspace) wire.Code {
		return h.ask(wire.Request{Header: wire.Header{Command: wire.AddLockspace}, Lockspace: l}).code
	}
	at := func(name string, id uint64, number int) wire.Lockspace {
		return wire.Lockspace{Name: name, HostID: id, Disk: c.at(number)}
	}
	for _, test := range []struct {
		name string
		l    wire.Lockspace
		code wire.Code
	}{
		{"without a name", at("", 1, 0), errno(syscall.EINVAL)},
		{"without an id", at("ls", 0, 0), errno(syscall.EINVAL)},
		{"an id that is too great", at("ls", 2001, 0), wire.AddLockspaceHostID},
		{"the area has another name", at("other", 1, 0), wire.LeaderLockspace},
		{"the area is of a resource", at("ls", 1, 1), wire.LeaderMagic},
		{"the area was never written", at("ls", 1, 3), wire.LeaderMagic},
		{"there is no file", wire.Lockspace{Name: "ls", HostID: 1, Disk: wire.Disk{Path: c.areas + ".absent"}}, errno(syscall.ENODEV)},
		{"a name that is not UTF-8", at("l\xff", 1, 0), errno(syscall.EINVAL)},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.code, add(test.l))
			require.Empty(t, h.lockspaces())
		})
	}
	require.Equal(t, wire.OK, add(at("ls", 7, 0)))
	require.Equal(t, errno(syscall.EEXIST), add(at("ls", 7, 0)))
	require.Equal(t, errno(syscall.EINVAL), add(at("ls", 8, 0)))
	require.Equal(t, errno(syscall.EINVAL), add(at("other", 7, 0)))
	require.Equal(t, errno(syscall.EINVAL), add(at("ls", 7, 1)))
	require.Equal(t, []wire.Lockspace{at("ls", 7, 0)}, h.lockspaces())

	two := c.host(2)
	require.Equal(t, wire.HostidBusy, two.ask(wire.Request{Header: wire.Header{Command: wire.AddLockspace}, Lockspace: at("ls", 7, 0)}).code)
	require.Empty(t, two.lockspaces())
}

// TestAddLockspace_Generation_Grows: with each time that a host id is taken.
func TestAddLockspace_Generation_Grows(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	last := uint64(0)
	for range 3 {
		of := h.hosts(0)[1]
		require.Greater(t, of.Generation, last)
		require.Equal(t, uint32(wire.HostLive), of.Flags)
		last = of.Generation
		require.Equal(t, wire.OK, h.space(wire.RemLockspace, 0))
		h.add()
	}
}

func TestAddLockspace_Async_IsAwaited(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	require.Equal(t, errno(syscall.ENOENT), h.space(wire.InqLockspace, wire.InqWait))
	h.writeLockspace()
	require.Equal(t, wire.OK, h.space(wire.AddLockspace, wire.AddAsync))
	require.Equal(t, wire.OK, h.space(wire.InqLockspace, wire.InqWait))
	require.Equal(t, wire.OK, h.space(wire.InqLockspace, 0))
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, wire.RemAsync))
	eventually(t, "it has gone", func() bool { return h.space(wire.InqLockspace, wire.InqWait) == errno(syscall.ENOENT) })
	require.Empty(t, h.lockspaces())
	require.Equal(t, errno(syscall.ENOENT), h.space(wire.RemLockspace, 0))
}

func TestRemLockspace_WithAHolder_KillsIt(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), h.write("y", 2)
	record := h.dir + "/signals"
	a, spared := h.startAs(0, record), h.startAs(0, record)
	require.Equal(t, wire.OK, a.ask(wire.Request{Header: wire.Header{Command: wire.Killpath}, KillPath: "/bin/false"}).code)
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, wire.OK, spared.acquire(0, y))
	require.Equal(t, wire.OK, spared.release(0, y))
	require.Equal(t, errno(syscall.EBUSY), h.space(wire.RemLockspace, wire.RemUnused))
	require.Empty(t, spared.has(), "none was killed")
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, 0))
	require.Empty(t, h.lockspaces())
	a.ends()
	require.Empty(t, a.signals(), "SIGKILL, not SIGTERM")
	require.NotContains(t, h.log.String(), "running the killpath")
	require.Empty(t, spared.has(), "it had nothing in it")
	require.Equal(t, wire.OK, h.space(wire.AddLockspace, 0))
	require.Equal(t, wire.OK, spared.acquire(0, x))
	require.Equal(t, wire.OK, spared.release(0, x))
}

// TestRemLockspace_RestrictSigkill_Terminates: and waits until the client has released what it has.
func TestRemLockspace_RestrictSigkill_Terminates(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), h.write("y", 2)
	a := h.startAs(0, h.dir+"/signals")
	require.Equal(t, wire.OK, a.ask(wire.Request{Header: wire.Header{Command: wire.Restrict, Flags: wire.RestrictSigkill}}).code)
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, wire.RemAsync))
	eventually(t, "it has got SIGTERM twice", func() bool { return len(a.signals()) >= len("SIGTERM\nSIGTERM\n") })
	require.Equal(t, wire.OK, h.space(wire.InqLockspace, wire.InqWait), "it is there until then")
	require.Equal(t, errno(syscall.EBUSY), a.acquire(0, y), "the client must stop")
	require.Equal(t, errno(syscall.EAGAIN), h.space(wire.AddLockspace, 0))
	require.Equal(t, wire.OK, a.release(0, x))
	eventually(t, "the lockspace has gone", func() bool { return len(h.lockspaces()) == 0 })
	require.Empty(t, a.has(), "the client runs")
	h.add()
	require.Equal(t, wire.OK, a.acquire(0, y), "it is not being stopped any more")
	require.Equal(t, wire.OK, a.release(0, y))
}

func TestRemLockspace_Used_WaitsForUnused(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x := h.write("x", 1)
	require.Equal(t, wire.OK, h.configure(wire.ConfigUsed))
	require.Equal(t, errno(syscall.EINVAL), h.configure(0x80))
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, wire.RemAsync))
	eventually(t, "the log says what it waits for", func() bool { return strings.Contains(h.log.String(), "the setting used") })
	a := h.register()
	require.Equal(t, errno(syscall.ENOSPC), a.acquire(0, x))
	require.Equal(t, wire.OK, h.space(wire.InqLockspace, 0))
	again := h.connect()
	again.send(wire.Request{Header: wire.Header{Command: wire.RemLockspace}, Lockspace: h.lockspace("ls", 1)})
	require.Equal(t, wire.OK, h.configure(wire.ConfigUnused))
	require.Contains(t, []wire.Code{wire.OK, errno(syscall.ENOENT)}, again.receive().code, "it waited, or came too late")
	eventually(t, "it has gone", func() bool { return len(h.lockspaces()) == 0 })
	require.Equal(t, errno(syscall.ENOENT), h.configure(wire.ConfigUsed))
}

func TestRemLockspace_UsedByOrphans_WaitsForThem(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	h.write("x", 1)
	x := c.res("x", 1, wire.ResPersistent)
	orphan := func() {
		a := h.register()
		require.Equal(t, wire.OK, a.acquire(0, x))
		a.end()
		eventually(t, "it is an orphan", func() bool { return h.orphans() == 1 })
	}
	orphan()
	require.Equal(t, errno(syscall.EBUSY), h.space(wire.RemLockspace, wire.RemUnused))
	require.Equal(t, wire.OK, h.configure(wire.ConfigUsedByOrphans))
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, wire.RemAsync))
	eventually(t, "the log says what it waits for", func() bool { return strings.Contains(h.log.String(), `"orphan x"`) })
	require.Equal(t, wire.OK, h.space(wire.InqLockspace, 0))
	a := h.register()
	require.Equal(t, wire.Code(1), a.release(wire.RelOrphan, x))
	eventually(t, "the lockspace has gone", func() bool { return len(h.lockspaces()) == 0 })

	h.add()
	orphan()
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, 0), "orphans are released with it")
	h.add()
	require.Equal(t, wire.OK, a.acquire(0, x))
}

func TestGetHosts_States(t *testing.T) {
	c := newCluster(t, calm)
	one := c.ready(1)
	a := one.ask(wire.Request{Header: wire.Header{Command: wire.GetHosts}, Lockspace: wire.Lockspace{Name: "other"}})
	require.Equal(t, errno(syscall.ENOENT), a.code)
	two := c.host(2)
	two.add()
	eventually(t, "both are live", func() bool {
		all := one.hosts(0)
		return len(all) == 2 && all[1].Flags == wire.HostLive && all[2].Flags == wire.HostLive
	})
	require.Equal(t, map[uint64]wire.Host{3: {ID: 3, Flags: wire.HostFree}}, one.hosts(3))
	generation := one.hosts(2)[2].Generation
	require.NotZero(t, one.hosts(2)[2].Timestamp)
	require.Equal(t, wire.OK, two.space(wire.RemLockspace, 0))
	require.Equal(t, wire.Host{ID: 2, Flags: wire.HostFree, Generation: generation, IOTimeout: 10}, one.hosts(2)[2])
	require.NotContains(t, one.hosts(0), uint64(2))
}

func TestReadResource_AndOwners(t *testing.T) {
	c := newCluster(t, calm)
	one, two := c.ready(1), c.host(2)
	two.add()
	x := one.write("x", 1)
	owners := func() map[uint64]wire.Host {
		q := c.res("x", 1, 0)
		a := one.ask(command(wire.ReadResourceOwners, 0, q))
		require.Equal(t, wire.OK, a.code)
		found := decodeHosts(t, a.body[wire.ResourceSize:])
		require.Len(t, found, int(a.data))
		return found
	}
	require.Empty(t, owners())
	a, b := one.register(), two.register()
	require.Equal(t, wire.OK, b.acquire(0, x))
	held := owners()
	require.NotZero(t, held[2].Timestamp)
	require.Equal(t, map[uint64]wire.Host{2: {ID: 2, Generation: one.hosts(2)[2].Generation, Timestamp: held[2].Timestamp}}, held)
	require.Equal(t, wire.OK, b.convert(0, c.res("x", 1, wire.ResShared)))
	require.Equal(t, wire.OK, a.acquire(0, c.res("x", 1, wire.ResShared)))
	require.Len(t, owners(), 2)
	for _, test := range []struct {
		name string
		r    wire.Resource
		code wire.Code
	}{
		{"another name", c.res("y", 1, 0), wire.LeaderResource},
		{"another lockspace", wire.Resource{Lockspace: "other", Name: "x", NumDisks: 1, Disks: x.Disks}, wire.LeaderLockspace},
		{"a lockspace", c.res("x", 0, 0), wire.LeaderMagic},
		{"any name", wire.Resource{NumDisks: 1, Disks: x.Disks}, wire.OK},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := one.ask(command(wire.ReadResource, 0, test.r))
			require.Equal(t, test.code, answer.code)
			require.Len(t, answer.body, wire.ResourceSize, "the client reads a resource whatever the code")
		})
	}
	require.Equal(t, wire.OK, one.ask(command(wire.WriteResource, wire.WriteClear, c.res("x", 1, 0))).code)
	require.Equal(t, wire.LeaderMagic, one.ask(command(wire.ReadResource, 0, x)).code)
}

func TestReadLockspace_AlignAndVersion(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	q := wire.Request{Header: wire.Header{Command: wire.WriteLockspace, Data2: 7}, Lockspace: c.lockspace("ls", 0)}
	require.Equal(t, wire.OK, h.ask(q).code)
	read := func(l wire.Lockspace) answer {
		return h.ask(wire.Request{Header: wire.Header{Command: wire.ReadLockspace}, Lockspace: l})
	}
	a := read(c.lockspace("", 0))
	require.Equal(t, wire.OK, a.code)
	require.Equal(t, uint32(7), a.data, "the io_timeout")
	want := c.lockspace("ls", 1)
	want.Flags = wire.Align1M | wire.Sector512
	require.Equal(t, wire.AppendLockspace(nil, want), a.body)
	require.Equal(t, wire.LeaderLockspace, read(c.lockspace("other", 0)).code)

	align := h.ask(wire.Request{Header: wire.Header{Command: wire.Align}, Disk: c.at(0)})
	require.Equal(t, wire.Code(mib), align.code)
	align = h.ask(wire.Request{Header: wire.Header{Command: wire.Align}, Disk: wire.Disk{Path: c.areas + ".absent"}})
	require.Equal(t, errno(syscall.ENODEV), align.code)
	require.Equal(t, uint32(0x03080500), h.ask(wire.Request{Header: wire.Header{Command: wire.Version}}).data)
}

func TestStatus_ShowsWhatClientsHave(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	h.write("x", 1)
	a := h.register()
	require.Equal(t, wire.OK, a.acquire(0, c.res("x", 1, wire.ResPersistent)))
	require.Len(t, h.states(wire.StateDaemon), 1)
	require.Len(t, h.states(wire.StateClient), 1)
	require.Contains(t, h.states(wire.StateLockspace)[0], "list=spaces io_timeout=10 sector_size=512 ")
	require.Contains(t, h.states(wire.StateResource)[0], "list=held ")
	a.end()
	eventually(t, "it is an orphan", func() bool { return h.orphans() == 1 })
	require.Empty(t, h.states(wire.StateClient))
	b := h.ask(wire.Request{Header: wire.Header{Command: wire.HostStatus}, Lockspace: wire.Lockspace{Name: "ls"}})
	require.Equal(t, wire.OK, b.code)
	require.Contains(t, string(b.body), "owner_id=1 ")
	require.Equal(t, errno(syscall.ENOENT), h.ask(wire.Request{Header: wire.Header{Command: wire.HostStatus}, Lockspace: wire.Lockspace{Name: "other"}}).code)
}
