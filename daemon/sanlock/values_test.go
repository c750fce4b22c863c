package sanlock_test

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/layout"
)

// TestValueBlock_IsSeenByTheNextHost, until the area is written again.
func TestValueBlock_IsSeenByTheNextHost(t *testing.T) {
	c := newCluster(t, calm)
	one, two := c.ready(1), c.host(2)
	two.add()
	x := one.write("x", 1)
	a, b := one.register(), two.register()
	require.Equal(t, wire.OK, a.acquire(wire.AcquireLVB, x))
	require.Empty(t, one.lvb(x), "it was never set")
	require.Equal(t, wire.OK, one.setLVB(x, "first of one"))
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, b.acquire(wire.AcquireLVB, x))
	require.Equal(t, "first of one", two.lvb(x))
	require.Equal(t, wire.OK, two.setLVB(x, "FIRST"))
	require.Equal(t, "FIRST of one", two.lvb(x), "a shorter value replaces the first bytes")
	b.end()
	eventually(t, "the other host can acquire it", func() bool { return a.acquire(wire.AcquireLVB, x) == wire.OK })
	require.Equal(t, "FIRST of one", one.lvb(x), "its client ended")
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, a.acquire(wire.AcquireLVB, c.res("x", 1, wire.ResShared)))
	require.Equal(t, "FIRST of one", one.lvb(x), "a holder without a value block leaves it")
	require.Equal(t, wire.OK, a.release(0, x))

	one.write("x", 1)
	require.Equal(t, wire.OK, a.acquire(wire.AcquireLVB, x))
	require.Empty(t, one.lvb(x), "it is another resource of this name")
}

func TestValueBlock_Refused(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, plain := h.write("x", 1), h.write("plain", 2)
	a := h.register()
	get := func(r wire.Resource) wire.Code {
		return h.ask(command(wire.GetLVB, 0, bare([]wire.Resource{r})...)).code
	}
	require.Equal(t, errno(syscall.ENOENT), get(x))
	require.Equal(t, errno(syscall.ENOENT), h.setLVB(x, "a"))
	require.Equal(t, wire.OK, a.acquire(0, plain))
	require.Equal(t, errno(syscall.EINVAL), get(plain), "acquired without it")
	require.Equal(t, errno(syscall.EINVAL), h.setLVB(plain, "a"))
	require.Equal(t, wire.OK, a.acquire(wire.AcquireLVB, x))
	const limit = layout.MaxValue - 8
	require.Equal(t, wire.OK, h.setLVB(x, strings.Repeat("a", limit)))
	require.Equal(t, strings.Repeat("a", limit), h.lvb(x))
	require.Equal(t, errno(syscall.E2BIG), h.setLVB(x, strings.Repeat("b", limit+1)))
	require.Equal(t, errno(syscall.E2BIG), h.setLVB(x, strings.Repeat("\x00", 513)), "more than a sector")
	require.Equal(t, errno(syscall.E2BIG), h.setLVB(x, strings.Repeat("\x00", wire.MaxLVB+1)))
	require.Equal(t, strings.Repeat("a", limit), h.lvb(x), "none of them was written")
	require.Equal(t, wire.OK, h.setLVB(x, "b"+strings.Repeat("\x00", 511)), "zeroes at its end are not stored")
	require.Equal(t, "b", h.lvb(x))
	require.Equal(t, wire.OK, a.convert(0, c.res("x", 1, wire.ResShared)))
	require.Equal(t, errno(syscall.EINVAL), h.setLVB(x, "c"), "a reader writes nothing")
	require.Equal(t, "b", h.lvb(x))
}

// TestValueBlock_ManyConnections_OneValue: each write is whole.
func TestValueBlock_ManyConnections_OneValue(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x := h.write("x", 1)
	a := h.register()
	require.Equal(t, wire.OK, a.acquire(wire.AcquireLVB, x))
	var wg sync.WaitGroup
	for _, letter := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 20 {
				if code := h.setLVB(x, strings.Repeat(letter, 100)); code != wire.OK {
					t.Errorf("set_lvb: %v", code)
				}
				if v := h.lvb(x); v != strings.Repeat(v[:1], 100) {
					t.Errorf("get_lvb: %q", v)
				}
			}
		})
	}
	for range 20 {
		require.Equal(t, uint32(1), a.inquire().data)
	}
	wg.Wait()
}

func TestConvert_BothWays(t *testing.T) {
	c := newCluster(t, calm)
	one, two := c.ready(1), c.host(2)
	two.add()
	x := one.write("x", 1)
	shared := c.res("x", 1, wire.ResShared)
	a, a2, b := one.register(), one.register(), two.register()
	require.Equal(t, errno(syscall.ENOENT), a.convert(0, shared))
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, errno(syscall.ENOENT), a2.convert(0, shared), "another client's")
	require.Equal(t, errno(syscall.EALREADY), a.convert(0, x))
	require.Equal(t, wire.AcquireIdlive, b.acquire(0, shared))
	require.Equal(t, wire.OK, a.convert(0, shared))
	require.Equal(t, errno(syscall.EALREADY), a.convert(0, shared))
	require.Contains(t, a.has(), ":SH")
	require.Equal(t, wire.OK, b.acquire(0, shared))
	require.Equal(t, errno(syscall.EAGAIN), a.convert(0, x), "another host reads")
	require.Contains(t, a.has(), ":SH", "it keeps what it has")
	require.Equal(t, wire.OK, b.release(0, shared))
	require.Equal(t, wire.OK, a2.acquire(0, shared))
	require.Equal(t, errno(syscall.EAGAIN), a.convert(0, x), "another client reads")
	require.Equal(t, wire.OK, a2.release(0, shared))
	require.Equal(t, wire.OK, a.convert(0, x))
	require.NotContains(t, a.has(), ":SH")
	require.Equal(t, wire.AcquireIdlive, b.acquire(0, shared))
	require.Equal(t, wire.OK, a.release(0, x))
	require.Equal(t, wire.OK, b.acquire(0, x))
}
