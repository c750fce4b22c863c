package sanlock_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// TestConn_GarbageClients_DisturbNoOther: a client holds a resource, and continues to use it.
func TestConn_GarbageClients_DisturbNoOther(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x, y := h.write("x", 1), h.write("y", 2)
	a := h.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	header := func(version, cmd, length uint32) (b []byte) {
		for _, n := range []uint32{wire.Magic, version, cmd, 0, length, 0, 0, wire.Self} {
			b = binary.NativeEndian.AppendUint32(b, n)
		}
		return b
	}
	whole := command(wire.Acquire, 0, y)
	whole.Version = wire.Proto
	request := whole.Append(nil)
	random := make([]byte, 4096)
	dice := rand.NewChaCha8([32]byte{1})
	_, _ = dice.Read(random)
	eight := make([]wire.Resource, wire.MaxResources+1)
	for i := range eight {
		eight[i] = y
	}
	many := command(wire.Acquire, 0, eight...)
	many.Version = wire.Proto
	for name, garbage := range map[string][]byte{
		"nothing":             {},
		"random bytes":        random,
		"half a header":       request[:wire.HeaderSize/2],
		"half a body":         request[:len(request)/2],
		"a great length":      header(wire.Proto, uint32(wire.Acquire), 1<<31),
		"a length of 0":       header(wire.Proto, uint32(wire.Acquire), 0),
		"an unknown command":  header(wire.Proto, 4711, wire.HeaderSize),
		"command 0":           header(wire.Proto, 0, wire.HeaderSize),
		"a later protocol":    header(wire.Proto+1<<16, uint32(wire.Inquire), wire.HeaderSize),
		"too many resources":  many.Append(nil),
		"a body for register": header(wire.Proto, uint32(wire.Register), wire.HeaderSize+8),
	} {
		t.Run(name, func(t *testing.T) {
			for _, registered := range []bool{false, true} {
				b := h.connect()
				if registered {
					b.registers()
				}
				_, err := b.out.Write(garbage)
				require.NoError(t, err)
				require.Contains(t, a.has(), "ls:x:")
				b.end()
			}
			require.Equal(t, wire.OK, a.acquire(0, y))
			require.Equal(t, wire.OK, a.release(0, y))
		})
	}
}

// TestConn_RandomRequests_AreAnswered: valid requests with random contents, of several clients at the same time.
func TestConn_RandomRequests_AreAnswered(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x := h.write("x", 1)
	a := h.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(i), 1))
			b := h.register()
			for range 100 {
				cmd := []wire.Command{wire.Acquire, wire.Release, wire.Inquire, wire.Convert, wire.GetLVB, wire.SetLVB, wire.InqLockspace,
					wire.ReadResource, wire.ReadResourceOwners, wire.Version, wire.Align, wire.ExamineLockspace, wire.SetEvent}[dice.IntN(13)]
				r := c.res([]string{"x", "y", ""}[dice.IntN(3)], dice.IntN(3), dice.Uint32N(16))
				q := command(cmd, dice.Uint32N(16)&^wire.InqWait)
				switch cmd {
				case wire.Acquire, wire.ReadResource, wire.ReadResourceOwners:
					q.Resources = []wire.Resource{r}
				case wire.Release, wire.Convert, wire.GetLVB, wire.SetLVB:
					q.Resources = bare([]wire.Resource{r})
				case wire.SetEvent:
					q.Opaque = make([]byte, wire.LockspaceSize+32)
				}
				q.Seq = dice.Uint32()
				b.send(q)
				answer, err := b.read()
				if err != nil || answer.cmd != uint32(cmd) || answer.seq != q.Seq {
					t.Errorf("%v: answer %+v, %v", cmd, answer, err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Contains(t, a.has(), "ls:x:")
}

func TestRestrictAll_IgnoresCommands(t *testing.T) {
	c := newCluster(t, calm)
	h := c.ready(1)
	x := h.write("x", 1)
	a, b := h.register(), h.register()
	require.Equal(t, wire.OK, a.acquire(0, x))
	require.Equal(t, wire.OK, a.ask(wire.Request{Header: wire.Header{Command: wire.Restrict, Flags: wire.RestrictAll}}).code)
	for range 100 {
		a.send(command(wire.Release, wire.RelAll))
	}
	require.Equal(t, errno(syscall.EEXIST), b.acquire(0, x))
	a.end()
	eventually(t, "the end of the connection releases", func() bool { return b.acquire(0, x) == wire.OK })
}

// TestRegister_Twice_IsAccepted: register has no answer that could refuse it.
func TestRegister_Twice_IsAccepted(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	a := h.register()
	a.registers()
	require.Equal(t, 1, h.users())
}

func TestKillpath_NeedsRegistration(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	q := wire.Request{Header: wire.Header{Command: wire.Killpath, Flags: wire.KillpathPID}, KillPath: "/k", KillArgs: "a b"}
	require.Equal(t, errno(syscall.EBUSY), h.ask(q).code, "not registered")
	a := h.register()
	require.Equal(t, wire.OK, a.ask(q).code)
}

func TestUnservedCommands_AreRefused(t *testing.T) {
	c := newCluster(t, calm)
	h := c.host(1)
	a := h.connect()
	const index = 16 + wire.NameLen + wire.DiskSize // of resources
	for cmd, body := range map[wire.Command]int{
		wire.Shutdown: 0, wire.LogDump: 0, wire.RequestResource: 0, wire.ExamineLockspace: 0, wire.ExamineResource: 0, wire.ShutdownWait: 0,
		wire.RegEvent: wire.LockspaceSize + 32, wire.EndEvent: 0, wire.SetEvent: wire.LockspaceSize + 32, wire.Renewal: 0,
		wire.FormatRindex: index, wire.UpdateRindex: index + 64, wire.LookupRindex: index + 64, wire.CreateResource: index + 64,
		wire.DeleteResource: index + 64, wire.RebuildRindex: index,
	} {
		q := command(cmd, 0)
		q.Opaque = make([]byte, body)
		switch cmd {
		case wire.RequestResource:
			q.Resources = []wire.Resource{c.res("x", 1, 0)}
		case wire.ExamineResource:
			q.Resources = bare([]wire.Resource{c.res("x", 1, 0)})
		}
		require.Equal(t, errno(syscall.EOPNOTSUPP), a.ask(q).code, cmd)
		require.Contains(t, h.log.String(), "command="+cmd.String())
	}
}
