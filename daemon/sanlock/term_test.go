package sanlock_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/sanlock"
	"github.com/bakeryd/bakeryd/daemon/sanlock/registry"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/daemon/session"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestRestart_KeptConnection_Continues: the client notices nothing.
func TestRestart_KeptConnection_Continues(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1, keeping)
	x, y := h.write("x", 1), h.write("y", 2)
	a, deaf := h.register(), h.register()
	require.Equal(t, wire.OK, a.acquire(wire.AcquireLVB, x))
	require.Equal(t, wire.OK, h.setLVB(x, "block"))
	require.Equal(t, wire.OK, deaf.acquire(0, y))
	require.Equal(t, wire.OK, deaf.ask(wire.Request{Header: wire.Header{Command: wire.Restrict, Flags: wire.RestrictAll}}).code)
	has, generation := a.has(), h.hosts(0)[1].Generation
	h.restart()
	require.Equal(t, has, a.has())
	require.Equal(t, generation, h.hosts(0)[1].Generation)
	require.Equal(t, "block", h.lvb(x))
	require.Equal(t, errno(syscall.EEXIST), a.acquire(0, y))
	require.Equal(t, wire.OK, a.convert(0, c.res("x", 1, wire.ResShared)))
	h.restart()
	require.Equal(t, strings.Split(has, ":")[:4], strings.Split(a.has(), ":")[:4])
	require.Contains(t, a.has(), ":SH")
	deaf.send(command(wire.Release, wire.RelAll))
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, errno(syscall.EEXIST), a.acquire(0, y), "it is restricted to no command")
	deaf.end()
	eventually(t, "the end of a connection releases", func() bool { return a.acquire(0, y) == wire.OK })
}

// TestRestart_WithoutItsConnection_UntilTheProcessEnds: the client cannot be asked, so it has what it had.
func TestRestart_WithoutItsConnection_UntilTheProcessEnds(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y, z := h.write("x", 1), h.write("y", 2), h.write("z", 3)
	a, ended := h.start(), h.start()
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, wire.OK, a.acquire(0, c.res("z", 3, wire.ResPersistent)))
	require.Equal(t, wire.OK, ended.acquire(0, y))
	h.restart()
	b := h.register()
	require.Equal(t, errno(syscall.EEXIST), b.acquire(0, x))
	require.Equal(t, errno(syscall.EEXIST), b.acquire(0, y))
	require.Contains(t, string(b.askFor(a.pid, command(wire.Inquire, 0)).body), "ls:x:")
	ended.kill()
	eventually(t, "its resource is free", func() bool { return b.acquire(0, y) == wire.OK })
	b.end()
	eventually(t, "one client is left", func() bool { return h.users() == 1 })
	h.close()
	a.kill() // while no server runs
	h.reopen()
	d := h.start()
	eventually(t, "its resource is free", func() bool { return d.acquire(0, x) == wire.OK })
	require.Equal(t, errno(syscall.EUCLEAN), d.acquire(0, z), "it was persistent")
	h.restart()
	b = h.register()
	require.Equal(t, errno(syscall.EEXIST), b.acquire(0, x))
	require.Equal(t, wire.OK, b.acquire(wire.AcquireOrphan, z), "an orphan is still one")
}

// TestRestart_RegistersAgain_Continues: on a new connection of the process.
func TestRestart_RegistersAgain_Continues(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), h.write("y", 2)
	a := h.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	h.restart()
	b := h.register()
	require.Contains(t, b.has(), "ls:x:")
	other := h.register()
	require.Empty(t, other.has(), "one connection continues")
	require.Equal(t, wire.OK, b.acquire(0, y))
	require.Equal(t, wire.OK, b.release(0, x))
	require.Equal(t, wire.OK, other.acquire(0, x))
	b.end()
	eventually(t, "the end of the connection releases", func() bool { return other.acquire(0, y) == wire.OK })
}

// TestRestart_DuringACommand_IsAnswered: the next process executes what the client of a connection that was kept has asked for.
func TestRestart_DuringACommand_IsAnswered(t *testing.T) {
	c := newCluster(t, calm)
	asked, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h := c.ready(1, keeping, func(h *host) {
		h.cfg.May = func(_ sanlock.Caller, lock string) (err error) {
			if lock == "sanlock/ls/x" {
				once.Do(func() {
					close(asked)
					<-proceed
					err = api.ErrForbidden
				})
			}
			return err
		}
	})
	x, y := h.write("x", 1), h.write("y", 2)
	a, b := h.register(), h.register()
	a.send(command(wire.Acquire, 0, x))
	<-asked
	require.Equal(t, wire.OK, b.acquire(0, y), "which saves the state again")
	h.close() // which waits for the command for a second
	close(proceed)
	h.reopen()
	answer := a.receive()
	require.Equal(t, uint32(wire.Acquire), answer.cmd)
	require.Equal(t, wire.OK, answer.code)
	require.Contains(t, a.has(), "ls:x:", "and one answer only")
	require.Contains(t, b.has(), "ls:y:")
}

// TestRestart_HoldIsLost_StopsItsUsers: other hosts may have the resource.
func TestRestart_HoldIsLost_StopsItsUsers(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x := h.write("x", 1)
	a := h.start()
	require.Equal(t, wire.OK, a.acquire(0, x))
	h.close()
	text, err := os.ReadFile(h.state())
	require.NoError(t, err)
	saved, err := registry.Load(text)
	require.NoError(t, err)
	hold := saved.Resources[registry.Key{Lockspace: "ls", Name: "x"}].Hold
	own, err := h.term().Sessions().Take(api.LockRequest{Name: "sanlock/ls/x", NonBlock: true, Session: hold.Session, Token: hold.Token}, session.Client{})
	require.NoError(t, err)
	own.Leave()
	h.reopen()
	a.ends()
	eventually(t, "its lockspace is left", func() bool { return len(h.lockspaces()) == 0 })
	require.Contains(t, h.log.String(), "a resource of the sanlock socket is lost")
	h.add()
	b := h.register()
	require.Equal(t, wire.OK, b.acquire(0, x))
}

func TestRestart_DamagedState_IsReportedAndNotUsed(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	h.close()
	require.NoError(t, os.WriteFile(h.state(), []byte(`{"clients":[null]}`), 0o600))
	h.reopen()
	require.Empty(t, h.lockspaces())
	require.Contains(t, h.log.String(), "the state of the sanlock socket is not usable")
	h.writeLockspace()
	h.add()
}

// TestStateFile_EndsWithWhatItHas: no file is left when no client has anything.
func TestStateFile_EndsWithWhatItHas(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	require.FileExists(t, h.state())
	require.Equal(t, wire.OK, h.space(wire.RemLockspace, 0))
	require.NoFileExists(t, h.state())
}

// TestLeaseLost_StopsClients_InOrder: killpath, SIGTERM, SIGKILL. The lockspaces are gone then, and can be added again
// when the host has joined again.
func TestLeaseLost_StopsClients_InOrder(t *testing.T) {
	c := newCluster(t, short)
	h := c.ready(1)
	x, y, z := h.write("x", 1), h.write("y", 2), h.write("z", 3)
	ran := filepath.Join(h.dir, "ran")
	script := filepath.Join(h.dir, "kill path")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" > '"+ran+"'\n"), 0o700))
	stubborn, plain, idle := h.startAs(0, filepath.Join(h.dir, "stubborn")), h.start(), h.start()
	require.Equal(t, wire.OK, stubborn.ask(wire.Request{Header: wire.Header{Command: wire.Killpath, Flags: wire.KillpathPID},
		KillPath: script, KillArgs: `ls a\ b`}).code)
	require.Equal(t, wire.OK, stubborn.acquire(0, x))
	require.Equal(t, wire.OK, plain.acquire(0, y))
	require.Equal(t, wire.OK, plain.acquire(0, c.res("z", 3, wire.ResPersistent)))

	release := h.faulty().Hang(disktest.Fault{})
	stubborn.ends()
	plain.ends()
	require.Equal(t, syscall.SIGKILL, stubborn.status().Signal())
	eventually(t, "the killpath has run", func() bool { text, _ := os.ReadFile(ran); return len(text) > 0 })
	eventually(t, "its arguments", func() bool {
		text, err := os.ReadFile(ran)
		return err == nil && string(text) == "ls\na b\n"+stubborn.number()+"\n"
	})
	require.Empty(t, strings.Trim(stubborn.signals(), "SIGTERM\n"))
	eventually(t, "the lockspace is gone", func() bool { return len(h.lockspaces()) == 0 })
	require.Equal(t, errno(syscall.EAGAIN), h.ask(command(wire.ReadResource, 0, x)).code, "the lease is lost")
	require.Equal(t, errno(syscall.EAGAIN), h.space(wire.AddLockspace, 0))
	release()
	h.joins()
	h.add()
	require.Empty(t, idle.has(), "a client that had nothing is not stopped")
	require.Equal(t, wire.OK, idle.acquire(0, x, y, z))
	require.Equal(t, wire.OK, idle.release(wire.RelAll))
}

// TestDrain_StopsClients: as SIGINT of bakeryd does. The host leaves then.
func TestDrain_StopsClients(t *testing.T) {
	c := newCluster(t, short)
	h := c.ready(1)
	x := h.write("x", 1)
	a, idle := h.start(), h.start()
	require.Equal(t, wire.OK, a.acquire(0, x))
	h.svc.Drain()
	a.ends()
	require.Equal(t, syscall.SIGTERM, a.status().Signal())
	h.ends()
	require.Empty(t, idle.has(), "it is not stopped")
	require.Equal(t, errno(syscall.ENOSPC), idle.acquire(0, x), "no host is in the lockspace any more")
	h.close()
}

// TestDeadHost_IsWaitedFor_UnlessNowait: another host has the resource once the holder's host is dead.
func TestDeadHost_IsWaitedFor_UnlessNowait(t *testing.T) {
	c := newCluster(t, short)
	one, two := c.ready(1), c.host(2)
	two.add()
	x, y := one.write("x", 1), one.write("y", 2)
	a, b := one.start(), two.start()
	require.Equal(t, wire.OK, b.acquire(0, x))
	require.Equal(t, wire.OK, b.acquire(0, c.res("y", 2, wire.ResShared)))
	require.Equal(t, wire.AcquireIdlive, a.acquire(0, x))
	require.Equal(t, wire.AcquireIdlive, a.acquire(wire.AcquireOwnerNowait, x))
	require.Equal(t, wire.AcquireIdlive, a.acquire(0, c.res("x", 1, wire.ResShared)))
	require.Equal(t, errno(syscall.EAGAIN), a.acquire(0, y), "readers")
	require.Equal(t, wire.OK, a.acquire(0, c.res("y", 2, wire.ResShared)))
	require.Equal(t, errno(syscall.EAGAIN), a.convert(0, y))

	require.Equal(t, uint32(wire.HostLive), one.hosts(2)[2].Flags)
	release := two.faulty().Hang(disktest.Fault{})
	defer release()
	eventually(t, "its host does not renew its lease", func() bool { return a.acquire(wire.AcquireOwnerNowait, x) != wire.AcquireIdlive })
	require.Equal(t, wire.OK, a.acquire(0, x), "as soon as the host is dead")
	require.Equal(t, wire.OK, a.convert(0, y))
	b.ends()
	eventually(t, "the host is shown as dead", func() bool { return one.hosts(2)[2].Flags == wire.HostDead })
	release()
	two.joins()
	two.add()
	d := two.start()
	require.Equal(t, wire.AcquireIdlive, d.acquire(0, x))
}
