package fence

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	keyA = 0xaaaa_0000_0000_0001
	keyB = 0xbbbb_0000_0000_0002
)

var (
	targetA = Target{Host: 1, Name: "a", Key: keyA}
	targetB = Target{Host: 2, Name: "b", Key: keyB}
)

// host returns the agent of a host that sees the model as /dev/sda, by the transports of kind.
func host(t *testing.T, n *nexus, kind string, cfg Config) *prAgent {
	t.Helper()
	cfg.Devices = []string{"/dev/sda"}
	if cfg.Drain == 0 {
		cfg.Drain = time.Millisecond
	}
	a, err := newPR(cfg, func(string) (*handle, error) { return handleOf(n, kind), nil })
	require.NoError(t, err)
	return a
}

// pair registers two hosts on a device.
func pair(t *testing.T, l *lun, kind string) (a, b *prAgent, na, nb *nexus) {
	t.Helper()
	na, nb = &nexus{lun: l}, &nexus{lun: l, descriptor: true}
	a, b = host(t, na, kind, Config{Key: keyA}), host(t, nb, kind, Config{Key: keyB})
	require.NoError(t, a.Register(t.Context()))
	require.NoError(t, b.Register(t.Context()))
	return a, b, na, nb
}

func TestCommands(t *testing.T) {
	l := &lun{}
	var sent []string
	na := &nexus{lun: l}
	record := recorder{na, &sent}
	a, err := newPR(Config{Key: keyA, Devices: []string{"x"}}, func(string) (*handle, error) {
		return &handle{transports: []transport{scsi{dev: record}}, readers: readersOf(scsi{dev: record}.state), close: func() {}}, nil
	})
	require.NoError(t, err)
	nb := &nexus{lun: l}
	require.NoError(t, host(t, nb, "SG_IO", Config{Key: keyB}).Register(t.Context()))
	l.held = false
	require.NoError(t, a.Register(t.Context()))
	require.NoError(t, a.Fence(t.Context(), targetB))
	require.NoError(t, a.Unregister(t.Context()))
	require.Equal(t, []string{
		"5f060000000000001800 0000000000000000aaaa0000000000010000000000000000",
		"5f010700000000001800 aaaa00000000000100000000000000000000000000000000",
		"5f050700000000001800 aaaa000000000001bbbb0000000000020000000000000000",
		"5f000000000000001800 aaaa00000000000100000000000000000000000000000000",
	}, sent)
}

// TestCommands_RegisterWithAnyKey_NamesNoOwnKey: a target may refuse the key of a host that is not
// registered, although it is to ignore that.
func TestCommands_RegisterWithAnyKey_NamesNoOwnKey(t *testing.T) {
	var sent []string
	require.NoError(t, scsi{dev: recorder{&nexus{lun: &lun{}}, &sent}}.change(registerIgnore, keyA, keyA))
	require.Equal(t, []string{"5f060000000000001800 0000000000000000aaaa0000000000010000000000000000"}, sent)
}

// recorder records the commands that change state.
type recorder struct {
	scsiDevice
	sent *[]string
}

func (r recorder) send(cdb, data []byte, out bool) (scsiResult, error) {
	if out {
		*r.sent = append(*r.sent, hex.EncodeToString(cdb)+" "+hex.EncodeToString(data))
	}
	return r.scsiDevice.send(cdb, data, out)
}

func TestTransportChosen(t *testing.T) {
	for _, tt := range []struct {
		name string
		lun  *lun
		want string
	}{
		{"kernel's own", &lun{}, "IOC_PR"},
		{"target refuses to keep keys", &lun{noPersist: true}, "SG_IO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, _, nb := pair(t, tt.lun, "")
			require.Equal(t, tt.want, a.devices[0].way)
			require.NoError(t, a.Fence(t.Context(), targetB))
			require.False(t, nb.mayWrite())
			require.ErrorIs(t, b.Fence(t.Context(), targetA), ErrFenced)
		})
	}
}

func TestUnsupported(t *testing.T) {
	n := &nexus{lun: &lun{none: true}}
	for _, kind := range []string{"SG_IO", "", "IOC_PR, nothing to read with"} {
		a := host(t, n, kind, Config{Key: keyA})
		err := a.Register(t.Context())
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "/dev/sda")
		require.ErrorContains(t, err, "exec agent")
		require.ErrorIs(t, a.Unregister(t.Context()), ErrUnsupported)
		require.ErrorIs(t, a.Fence(t.Context(), targetB), ErrUnsupported)
	}
}

func TestTargetsRefused(t *testing.T) {
	a, _, na, nb := pair(t, &lun{}, "SG_IO")
	na.before = func(cdb []byte) { t.Errorf("command %x was sent", cdb) }
	// Key 0 would remove every other host.
	require.ErrorIs(t, a.Fence(t.Context(), Target{Host: 2}), ErrTarget)
	require.ErrorIs(t, a.Fence(t.Context(), targetA), ErrTarget)
	require.True(t, na.mayWrite() && nb.mayWrite())
}

// Any call of a fenced host returns ErrFenced, whatever it can read. Only a new incarnation can
// register.
func TestFencedFindsOut(t *testing.T) {
	for _, kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			a, b, _, nb := pair(t, lunOf(kind), kind)
			require.NoError(t, a.Fence(t.Context(), targetB))
			require.ErrorIs(t, b.Fence(t.Context(), targetA), ErrFenced)
			resumed := host(t, nb, kind, Config{Key: keyB, Resumed: true})
			require.ErrorIs(t, resumed.Register(t.Context()), ErrFenced)
			require.False(t, nb.mayWrite(), "a resumed process does not undo it")
			require.NoError(t, b.Unregister(t.Context()))

			again := host(t, nb, kind, Config{Key: keyB + 1<<16})
			require.NoError(t, again.Register(t.Context()))
			require.True(t, nb.mayWrite())
			require.NoError(t, a.Fence(t.Context(), targetB), "that incarnation is gone")
			require.True(t, nb.mayWrite(), "and the new one is another target")
		})
	}
}

func TestResumed(t *testing.T) {
	for _, kind := range Kinds {
		_, _, _, nb := pair(t, lunOf(kind), kind)
		require.NoError(t, host(t, nb, kind, Config{Key: keyB, Resumed: true}).Register(t.Context()), kind)
		require.True(t, nb.mayWrite())
	}
}

// A host that rejoins replaces its old key, which is still registered.
func TestNewIncarnation(t *testing.T) {
	for _, kind := range Kinds {
		l := lunOf(kind)
		a, _, _, nb := pair(t, l, kind)
		require.NoError(t, host(t, nb, kind, Config{Key: keyB + 1<<16}).Register(t.Context()), kind)
		require.Len(t, l.registered, 2)
		require.NoError(t, a.Fence(t.Context(), Target{Host: 2, Key: keyB + 1<<16}))
		require.False(t, nb.mayWrite())
	}
}

// A process that only fences, and then leaves, finds the transports itself.
func TestWaysFoundLate(t *testing.T) {
	_, _, na, nb := pair(t, lunOf("like tgt"), "like tgt")
	a := host(t, na, "like tgt", Config{Key: keyA})
	require.NoError(t, a.Fence(t.Context(), targetB))
	require.False(t, nb.mayWrite())
	require.NoError(t, a.Unregister(t.Context()))
	require.Empty(t, na.lun.registered)
}

// It does not matter whose registration the reservation ends with.
func TestFenceHolder(t *testing.T) {
	for _, kind := range Kinds {
		if kind == "IOC_PR, nothing to read with" {
			continue // cannot see that, and no kernel drops it
		}
		l := lunOf(kind)
		l.dropsHolder = true
		_, b, na, nb := pair(t, l, kind)
		require.Same(t, na, l.holder)
		require.NoError(t, b.Fence(t.Context(), targetA), kind)
		require.False(t, na.mayWrite())
		require.True(t, nb.mayWrite())
	}
}

// Two hosts fence at the same time: each other, or the same third.
func TestRaces(t *testing.T) {
	for _, kind := range Kinds {
		a, _, na, nb := pair(t, lunOf(kind), kind)
		faster := func(victim *nexus) {
			na.before = func(cdb []byte) {
				if cdb[0] == opPersistentReserveOut && action(cdb[1]) == preemptAbort {
					na.lun.mu.Lock()
					defer na.lun.mu.Unlock()
					na.before = nil
					na.lun.remove(victim, nil, 0x2a05)
				}
			}
		}
		faster(nb)
		require.NoError(t, a.Fence(t.Context(), targetB), kind)
		require.NoError(t, host(t, nb, kind, Config{Key: keyB}).Register(t.Context()))
		faster(na)
		require.ErrorIs(t, a.Fence(t.Context(), targetB), ErrFenced, kind)
	}
}

func TestReservedOtherwise(t *testing.T) {
	l := &lun{}
	other := &nexus{lun: l}
	require.NoError(t, scsi{dev: other}.change(registerIgnore, 0, 77))
	l.held, l.kind, l.holder = true, 5, other
	for _, kind := range []string{"SG_IO", ""} {
		n := &nexus{lun: l}
		err := host(t, n, kind, Config{Key: keyA}).Register(t.Context())
		require.ErrorIs(t, err, ErrReserved)
		require.ErrorContains(t, err, "register with /dev/sda")
		require.ErrorContains(t, err, "Write Exclusive - Registrants Only (type 5)")
		require.Len(t, l.registered, 1)
	}
	n := &nexus{lun: l}
	require.ErrorIs(t, host(t, n, "IOC_PR, nothing to read with", Config{Key: keyA}).Register(t.Context()), ErrReserved)
	require.Len(t, l.registered, 1, "the key is taken back")
}

// A device that lost its registrations confirms nothing: the target may write.
func TestPowerLoss(t *testing.T) {
	for _, kind := range []string{"SG_IO", "IOC_PR, nothing to read with"} {
		l := &lun{}
		a, _, na, nb := pair(t, l, kind)
		l.persist = false
		l.powerLoss()
		require.True(t, nb.mayWrite())
		require.ErrorIs(t, a.Fence(t.Context(), targetB), ErrFenced)

		again := host(t, na, kind, Config{Key: keyA + 1<<16})
		require.NoError(t, again.Register(t.Context()))
		require.NoError(t, again.Fence(t.Context(), targetB))
		require.False(t, nb.mayWrite())
	}
	l := &lun{}
	a, _, _, nb := pair(t, l, "")
	l.powerLoss()
	require.NoError(t, a.Fence(t.Context(), targetB), "the kernel has the keys kept")
	require.False(t, nb.mayWrite())
}

// A reservation that another program released is acquired again before a fencing is confirmed.
func TestReservationGone(t *testing.T) {
	for _, kind := range []string{"SG_IO", "IOC_PR, nothing to read with"} {
		l := &lun{}
		a, b, _, nb := pair(t, l, kind)
		require.NoError(t, b.Unregister(t.Context()))
		l.held = false
		require.True(t, nb.mayWrite())
		require.NoError(t, a.Fence(t.Context(), targetB))
		require.False(t, nb.mayWrite())
	}
}

func TestDeviceThatDoesNothing(t *testing.T) {
	a, _, _, _ := pair(t, &lun{ignorePrempt: true}, "SG_IO")
	require.ErrorIs(t, a.Fence(t.Context(), targetB), ErrUnconfirmed)
}

func TestUnitAttentions(t *testing.T) {
	for _, kind := range Kinds {
		a, _, na, nb := pair(t, &lun{}, kind)
		na.attentions = []uint16{0x2900, 0x2a04, 0x3f0e}
		require.NoError(t, a.Fence(t.Context(), targetB), kind)
		require.False(t, nb.mayWrite())
	}
}

func TestUnderWay(t *testing.T) {
	t.Run("aborted", func(t *testing.T) {
		a, _, _, nb := pair(t, &lun{}, "")
		a.cfg.Drain = time.Hour
		nb.begin()
		require.NoError(t, a.Fence(t.Context(), targetB))
		require.Zero(t, nb.underWay())
	})
	t.Run("waited for", func(t *testing.T) {
		var log bytes.Buffer
		l := &lun{noAbort: true}
		na, nb := &nexus{lun: l}, &nexus{lun: l}
		const drain = 30 * time.Millisecond
		a := host(t, na, "SG_IO", Config{Key: keyA, Drain: drain, Log: slog.New(slog.NewTextHandler(&log, nil))})
		b := host(t, nb, "SG_IO", Config{Key: keyB})
		require.NoError(t, a.Register(t.Context()))
		for range 2 {
			require.NoError(t, b.Register(t.Context()))
			begun := time.Now()
			require.NoError(t, a.Fence(t.Context(), targetB))
			require.GreaterOrEqual(t, time.Since(begun), drain)
		}
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")), "told once")
	})
	t.Run("not waited for", func(t *testing.T) {
		a, _, _, nb := pair(t, &lun{noAbort: true}, "SG_IO")
		a.cfg.Drain = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Fence(ctx, targetB) }()
		require.Eventually(t, func() bool { return !nb.mayWrite() }, 10*time.Second, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// Two hosts with one path (a cloned initiator name, or guests that share one) replace each
// other's key.
func TestSharedPath(t *testing.T) {
	n := &nexus{lun: &lun{}}
	a, b := host(t, n, "", Config{Key: keyA}), host(t, n, "", Config{Key: keyB})
	require.NoError(t, a.Register(t.Context()))
	require.NoError(t, b.Register(t.Context()))
	require.ErrorIs(t, a.Fence(t.Context(), targetB), ErrFenced)
	require.NoError(t, a.Unregister(t.Context()))
	require.True(t, n.lun.held, "b is registered still")
}

func TestHungDevice(t *testing.T) {
	a, _, na, nb := pair(t, &lun{}, "")
	hung, release := make(chan struct{}), make(chan struct{})
	na.before = func([]byte) {
		close(hung)
		<-release
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Fence(ctx, targetB) }()
	<-hung
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorContains(t, a.Fence(ctx, targetB), "still under way")

	// The command that hung returns. Nothing was sent after it, and the next attempt repeats all
	// of it.
	na.before = nil
	close(release)
	require.NoError(t, a.Fence(t.Context(), targetB))
	require.False(t, nb.mayWrite())
}

func TestAllDevicesMustConfirm(t *testing.T) {
	luns := map[string]*lun{"/dev/sda": {}, "/dev/sdb": {ignorePrempt: true}}
	var nb []*nexus
	join := func(key uint64, keep *[]*nexus) *prAgent {
		paths := map[string]*nexus{}
		for path, l := range luns {
			paths[path] = &nexus{lun: l}
			if keep != nil {
				*keep = append(*keep, paths[path])
			}
		}
		a, err := newPR(Config{Key: key, Devices: []string{"/dev/sda", "/dev/sdb", "/dev/sda"}}, func(path string) (*handle, error) {
			return handleOf(paths[path], ""), nil
		})
		require.NoError(t, err)
		require.NoError(t, a.Register(t.Context()))
		return a
	}
	a := join(keyA, nil)
	join(keyB, &nb)
	err := a.Fence(t.Context(), targetB)
	require.ErrorIs(t, err, ErrUnconfirmed)
	require.ErrorContains(t, err, "/dev/sdb")
	require.NotContains(t, err.Error(), "/dev/sda")
	require.Equal(t, "pr on /dev/sda, /dev/sdb", a.String())
}

func TestManyKeys(t *testing.T) {
	l := &lun{}
	a, _, na, _ := pair(t, l, "SG_IO")
	for i := range 5000 {
		l.registered = append(l.registered, &nexus{lun: l, key: Key(i+3, 1)})
	}
	state, err := scsi{dev: na}.state()
	require.NoError(t, err)
	require.Len(t, state.Keys, 5002)
	require.NoError(t, a.Fence(t.Context(), Target{Key: Key(5002, 1)}))
	require.Len(t, l.registered, 5001)

	for i := range 5000 {
		l.registered = append(l.registered, &nexus{lun: l, key: Key(i+6000, 1)})
	}
	_, err = scsi{dev: na}.state()
	require.ErrorContains(t, err, "80016 bytes")
}

func TestKey(t *testing.T) {
	require.Equal(t, uint64(0x1111_2222_3333_0007), Key(7, 0x0000_1111_2222_3333))
	require.Equal(t, uint64(0x1111_2222_3333^0x4444)<<16|7, Key(7, 0x4444_1111_2222_3333))
	seen := map[uint64]bool{}
	for id := 1; id <= 2000; id++ {
		for _, incarnation := range []uint64{0, 1, 1 << 48, ^uint64(0)} {
			require.NotZero(t, Key(id, incarnation))
			seen[Key(id, incarnation)] = true
		}
	}
	require.Len(t, seen, 2000*3, "of two incarnations that differ in the folded bits only, the keys may agree")
	require.Panics(t, func() { Key(0, 1) })
	require.Panics(t, func() { Key(1<<16, 1) })
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{}, {Agent: "pr"}, {Agent: "pr", Devices: []string{"/dev/sda"}}, {Agent: "pr", Key: 1, Devices: []string{""}},
		{Agent: "exec"}, {Agent: "exec", Command: " "}, {Agent: "ipmi"},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig)
	}
}

// The error is that of the transport that failed, not that the first one does not exist.
func TestNotPermitted(t *testing.T) {
	n := &nexus{lun: &lun{noPersist: true}}
	a, err := newPR(Config{Key: keyA, Devices: []string{"/dev/sda"}}, func(string) (*handle, error) {
		return &handle{transports: []transport{overLinux(n), scsi{dev: forbidden{}}}, readers: readersOf(blind), close: func() {}}, nil
	})
	require.NoError(t, err)
	err = a.Register(t.Context())
	require.ErrorIs(t, err, unix.EPERM)
	require.NotErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "CAP_SYS_RAWIO")
}

// forbidden is a device that this process may not send commands to.
type forbidden struct{}

func (forbidden) send([]byte, []byte, bool) (scsiResult, error) {
	return scsiResult{}, errnoError("SG_IO", unix.EPERM)
}
