package sanlock_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/sanlock"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

func TestAcquire_Release_IsInquired(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x := h.write("x", 1)
	a := h.register()
	require.Empty(t, a.has())
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, fmt.Sprintf("ls:x:%s:%d:%d", c.areas, mib, a.lver()), a.has())
	require.NotZero(t, a.lver())
	require.Equal(t, wire.OK, a.release(0, x))
	require.Empty(t, a.has())
	require.Equal(t, wire.Code(-1), a.release(0, x))

	shared := c.res("x", 1, wire.ResShared)
	require.Equal(t, wire.OK, a.acquire(0, shared))
	require.Equal(t, wire.OK, a.acquire(0, shared))
	require.Equal(t, uint32(2), a.inquire().data, "it has it twice")
	require.Equal(t, fmt.Sprintf("ls:x:%s:%d:SH", c.areas, mib), a.has()[:len(a.has())/2])
	require.Equal(t, wire.OK, a.release(0, shared))
	require.Equal(t, uint32(1), a.inquire().data)
	require.Equal(t, wire.OK, a.acquire(0, shared))
	require.Equal(t, wire.OK, a.release(wire.RelAll))
	require.Empty(t, a.has())
	require.Equal(t, wire.OK, a.release(wire.RelAll), "of nothing")
}

func TestAcquire_ThatFails_SaysWhy(t *testing.T) {
	c := newCluster(t, calm)
	var forbidden atomic.Bool
	h := c.ready(1, func(h *host) {
		h.cfg.May = func(_ sanlock.Caller, lock string) error {
			if forbidden.Load() && lock == "sanlock/ls/x" {
				return api.ErrForbidden
			}
			return nil
		}
	})
	x := h.write("x", 1)
	a, b := h.register(), h.register()
	other, absent, far := c.res("x", 1, 0), c.res("x", 1, 0), c.res("x", 999, 0)
	other.Lockspace = "other"
	absent.Disks = []wire.Disk{{Path: filepath.Join(h.dir, "absent")}}
	longest := c.res(strings.Repeat(" ", 48), 2, 0)
	require.Equal(t, wire.OK, h.ask(command(wire.WriteResource, 0, longest)).code)
	h.write("z", 4) // the file has four areas before it
	for _, test := range []struct {
		name string
		want wire.Resource
		code wire.Code
	}{
		{"no such lockspace", other, errno(syscall.ENOSPC)},
		{"the area has another name", c.res("y", 1, 0), wire.LeaderResource},
		{"the area is of a lockspace", c.res("x", 0, 0), wire.LeaderMagic},
		{"the area was never written", c.res("x", 3, 0), wire.LeaderMagic},
		{"there is no file", absent, errno(syscall.ENOENT)},
		{"the area is behind the end", far, errno(syscall.EMSGSIZE)},
		{"48 bytes, each of which takes three in the name of the lock", longest, errno(syscall.EINVAL)},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.code, a.acquire(0, test.want))
			require.Empty(t, a.has())
		})
	}
	require.Equal(t, wire.OK, a.acquire(0, x))
	for name, flags := range map[string]uint32{"exclusive": 0, "shared": wire.ResShared} {
		require.Equal(t, errno(syscall.EEXIST), a.acquire(0, c.res("x", 1, flags)), name)
		require.Equal(t, errno(syscall.EEXIST), b.acquire(wire.AcquireOrphan, c.res("x", 1, flags)), name)
	}
	require.Equal(t, wire.Code(-1), b.release(0, x), "another client's")
	require.Equal(t, errno(syscall.EBUSY), h.ask(command(wire.Acquire, 0, c.res("y", 2, 0))).code, "not registered")
	require.Equal(t, errno(syscall.EBUSY), h.ask(command(wire.Inquire, 0)).code, "not registered")
	require.Equal(t, wire.OK, a.release(0, x))
	forbidden.Store(true)
	require.Equal(t, errno(syscall.EACCES), a.acquire(0, x))
	require.Empty(t, a.has())
}

// TestAcquire_Several_AllOrNone: the resource that could be acquired is free again.
func TestAcquire_Several_AllOrNone(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y, z := h.write("x", 1), h.write("y", 2), h.write("z", 3)
	a, b := h.register(), h.register()
	require.Equal(t, wire.OK, b.acquire(0, y))
	require.Equal(t, errno(syscall.EEXIST), a.acquire(0, x, y, z))
	require.Empty(t, a.has())
	require.Equal(t, wire.OK, b.acquire(0, x), "it was released again")
	require.Equal(t, wire.OK, b.release(0, x, y))
	require.Equal(t, wire.OK, a.acquire(0, x, y, z))
	require.Equal(t, uint32(3), a.inquire().data)

	require.Equal(t, wire.OK, a.release(0, y))
	require.Equal(t, wire.Code(-1), a.release(0, x, y, z), "one is not held")
	require.Empty(t, a.has(), "the others are released")
}

func TestClient_Ends_ReleasesWhatItHas(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), h.write("y", 2)
	a, b := h.register(), h.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	a.end()
	eventually(t, "the resource is free", func() bool { return b.acquire(0, x) == wire.OK })
	killed := h.start()
	require.Equal(t, wire.OK, killed.acquire(0, y))
	killed.kill()
	eventually(t, "the resource is free", func() bool { return b.acquire(0, y) == wire.OK })
	require.Equal(t, errno(syscall.ESRCH), b.askFor(killed.pid, command(wire.Inquire, 0)).code)
}

func TestOrphan_IsAdopted(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	h.write("x", 1)
	h.write("y", 2)
	x, y := c.res("x", 1, wire.ResPersistent), c.res("y", 2, wire.ResPersistent)
	a, b := h.register(), h.register()
	require.Equal(t, errno(syscall.ENOENT), a.acquire(wire.AcquireOrphanOnly, x), "there is none")
	require.Equal(t, wire.OK, a.acquire(wire.AcquireOrphan|wire.AcquireLVB, x, y), "there is none, so it is acquired")
	require.Equal(t, wire.OK, h.setLVB(x, "block"))
	before := a.has()
	a.end()
	eventually(t, "both are orphans", func() bool { return h.orphans() == 2 })
	require.Equal(t, errno(syscall.EUCLEAN), b.acquire(0, x))
	require.Equal(t, errno(syscall.EUCLEAN), b.acquire(wire.AcquireOrphan, c.res("x", 1, wire.ResShared|wire.ResPersistent)))
	require.Equal(t, wire.LeaderMagic, b.acquire(wire.AcquireOrphan, x, c.res("z", 0, 0)))
	require.Equal(t, 2, h.orphans(), "a request that fails leaves them as they were")
	require.Equal(t, wire.OK, b.acquire(wire.AcquireOrphan|wire.AcquireLVB, x))
	require.Equal(t, wire.OK, b.acquire(wire.AcquireOrphanOnly, y))
	require.Equal(t, before, b.has(), "with the versions that they had")
	require.Equal(t, "block", h.lvb(x))
	require.Equal(t, wire.OK, b.release(0, x))
	require.Equal(t, wire.OK, b.acquire(0, x), "no orphan any more")

	b.end()
	eventually(t, "both are orphans", func() bool { return h.orphans() == 2 })
	d := h.register()
	require.Equal(t, wire.Code(0), d.release(wire.RelOrphan, c.res("z", 3, 0)))
	require.Equal(t, wire.Code(1), d.release(wire.RelOrphan, x))
	require.Equal(t, wire.OK, d.acquire(0, x))
	require.Equal(t, wire.Code(1), d.release(wire.RelOrphan, c.res("", 0, 0)), "all of the lockspace")
	require.Equal(t, wire.OK, d.acquire(0, c.res("y", 2, 0)))
}

func (h *host) orphans() (n int) {
	for _, text := range h.states(wire.StateResource) {
		if strings.Contains(text, "list=orphan") {
			n++
		}
	}
	return n
}

// TestAcquire_ForAnotherProcess_OfTheSameUser: another user's process is not named.
func TestAcquire_ForAnotherProcess_OfTheSameUser(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), h.write("y", 2)
	a, b := h.start(), h.register()
	q := command(wire.Acquire, 0, x)
	require.Equal(t, wire.OK, b.askFor(a.pid, q).code)
	require.Contains(t, a.has(), "ls:x:")
	require.Empty(t, b.has())
	require.Contains(t, string(b.askFor(a.pid, command(wire.Inquire, 0)).body), "ls:x:")
	require.Equal(t, wire.OK, b.askFor(a.pid, command(wire.Release, 0, bare([]wire.Resource{x})...)).code)
	require.Empty(t, a.has())
	require.Equal(t, errno(syscall.ESRCH), b.askFor(1<<22+1, q).code, "no such process")

	if os.Getuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "CI runs as root, and skips nothing")
		t.Skip("SKIP: only root starts processes of another user")
	}
	require.NoError(t, os.Chmod(filepath.Dir(h.dir), 0o711))
	require.NoError(t, os.Chmod(h.dir, 0o711))
	require.NoError(t, os.Chmod(h.socket(), 0o666))
	other := h.startAs(65534, "")
	require.Equal(t, errno(syscall.EPERM), other.askFor(a.pid, q).code)
	require.Equal(t, errno(syscall.EPERM), other.askFor(a.pid, command(wire.Release, wire.RelAll)).code)
	require.Empty(t, a.has())
	require.Equal(t, errno(syscall.EACCES), other.acquire(0, y), "its user may not read the area")
	require.Equal(t, wire.OK, b.askFor(other.pid, q).code, "root may")
	require.Contains(t, string(b.askFor(other.pid, command(wire.Inquire, 0)).body), "ls:x:")
}

// askFor sends a request that is for another process.
func (c *client) askFor(pid int, q wire.Request) answer {
	c.t.Helper()
	q.Data2 = uint32(pid)
	return c.ask(q)
}

func TestRelease_Rename_OnlyByItsHolder(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), c.res("y", 1, 0)
	a, b := h.register(), h.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, wire.Code(-1), b.release(wire.RelRename, x, y))
	require.Equal(t, wire.OK, h.ask(command(wire.ReadResource, 0, x)).code, "its name is the same")
	require.Equal(t, wire.OK, a.release(wire.RelRename, x, y))
	require.Empty(t, a.has())
	require.Equal(t, wire.LeaderResource, b.acquire(0, x))
	require.Equal(t, wire.OK, b.acquire(0, y))
	require.Equal(t, wire.OK, b.release(0, y))
	require.Equal(t, wire.OK, b.acquire(0, c.res("y", 1, wire.ResShared)))
	require.Equal(t, errno(syscall.EINVAL), b.release(wire.RelRename, y, x), "it is shared")
}

// TestRelease_Rename_WhileAnotherHostAcquires: the other host has read the old name before it takes the lock.
func TestRelease_Rename_WhileAnotherHostAcquires(t *testing.T) {
	c := newCluster(t, calm)
	one := c.ready(1)
	x, y := one.write("x", 1), c.res("y", 1, 0)
	a := one.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	rename := make(chan struct{}, 1)
	two := c.host(2, func(h *host) {
		h.cfg.May = func(_ sanlock.Caller, lock string) error {
			if lock == "sanlock/ls/x" {
				if code := a.release(wire.RelRename, x, y); code != wire.OK {
					return errors.New(code.String())
				}
				close(rename)
			}
			return nil
		}
	})
	two.add()
	b := two.register()
	require.Equal(t, wire.LeaderResource, b.acquire(0, x))
	<-rename
	require.Empty(t, b.has())
	require.Equal(t, wire.OK, b.acquire(0, y))
	require.Equal(t, wire.AcquireIdlive, a.acquire(0, y))
}

// TestAcquire_Version_AfterInquire: a client may demand that nothing else had the resource since it asked.
func TestAcquire_Version_AfterInquire(t *testing.T) {
	c := newCluster(t, calm)
	one, two := c.ready(1), c.host(2)
	two.add()
	x := one.write("x", 1)
	a, b := one.register(), two.register()
	at := func(lver uint64) wire.Resource {
		r := c.res("x", 1, wire.ResLVER)
		r.Lver = lver
		return r
	}
	require.Equal(t, wire.AcquireLver, a.acquire(0, at(7)), "no client has asked for a version")
	require.Equal(t, wire.OK, a.acquire(0, x))
	first := a.lver()
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, a.acquire(0, at(first)), "nothing had it since")
	second := a.lver()
	require.Greater(t, second, first)
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.AcquireLver, a.acquire(0, at(first)))
	require.Equal(t, wire.OK, b.acquire(0, at(second)), "on another host")
	require.Equal(t, wire.OK, b.release(0, x))
	require.Equal(t, wire.AcquireLver, a.acquire(0, at(second)), "the other host had it between")
	require.Empty(t, a.has())
	require.Equal(t, wire.OK, a.acquire(0, x))
	third := a.lver()
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, b.acquire(0, c.res("x", 1, wire.ResShared)))
	require.Equal(t, wire.OK, b.release(0, x))
	require.Equal(t, wire.OK, a.acquire(0, at(third)), "readers change nothing")
}
