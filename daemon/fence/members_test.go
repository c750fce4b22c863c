package fence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// someMembers are the member disks as one host sees them.
type someMembers struct {
	paths    []string // "" if missing
	replaced []bool   // by none, or by a disk that this host did not find
	refused  map[int]error
}

func (m *someMembers) Disks() (disks []Disk) {
	for _, path := range m.paths {
		disks = append(disks, Disk{Path: path})
	}
	return disks
}

func (m *someMembers) Has(position int, _ Disk) bool {
	return len(m.replaced) == 0 || !m.replaced[position]
}

func (m *someMembers) Refuse(position int, why error) {
	if m.refused == nil {
		m.refused = map[int]error{}
	}
	m.refused[position] = why
}

// fabric has member disks and hosts with a path to each.
type fabric struct {
	t    *testing.T
	luns []*lun
}

func newFabric(t *testing.T, members int) *fabric {
	f := &fabric{t: t}
	for range members {
		f.luns = append(f.luns, &lun{})
	}
	return f
}

// fabricHost is a host whose paths may fail.
type fabricHost struct {
	*prAgent
	*someMembers
	nexus []*nexus
	names []string // of the disks to which the paths lead
	away  []bool   // the path fails
}

// host returns a host that is not registered yet, and finds some members missing.
func (f *fabric) host(cfg Config, missing ...int) *fabricHost {
	h := &fabricHost{someMembers: &someMembers{}, away: make([]bool, len(f.luns))}
	for i, l := range f.luns {
		h.nexus = append(h.nexus, &nexus{lun: l})
		h.paths = append(h.paths, fmt.Sprint(i))
		h.names = append(h.names, "")
	}
	for _, i := range missing {
		h.paths[i], h.away[i] = "", true
	}
	cfg.Members, cfg.Drain = h.someMembers, time.Millisecond
	var err error
	h.prAgent, err = newPR(cfg, func(path string) (*handle, error) {
		var i int
		_, err := fmt.Sscan(path, &i)
		require.NoError(f.t, err)
		if h.away[i] {
			return nil, unix.ENOENT
		}
		to := handleOf(h.nexus[i], "SG_IO")
		to.name = h.names[i]
		return to, nil
	})
	require.NoError(f.t, err)
	return h
}

func (f *fabric) joined(cfg Config, missing ...int) *fabricHost {
	h := f.host(cfg, missing...)
	require.NoError(f.t, h.Register(f.t.Context()))
	return h
}

// returns makes a missing member reachable for a host, and admits it.
func (h *fabricHost) returns(ctx context.Context, i int) error {
	h.away[i] = false
	return h.Admit(ctx, i, Disk{Path: fmt.Sprint(i)})
}

// writes returns the number of members on which a host uses its key, and could write.
func (h *fabricHost) writes() (n int) {
	for i := range h.nexus {
		if h.members.admitted[i].Load() != nil && h.nexus[i].mayWrite() {
			n++
		}
	}
	return n
}

// TestFence_MemberWasReplaced_DoesNotCount: b is not a member of the lists that other hosts use any more.
func TestFence_MemberWasReplaced_DoesNotCount(t *testing.T) {
	f := newFabric(t, 3)
	a := f.joined(Config{Key: keyA})
	b := f.joined(Config{Key: keyB})
	a.replaced = []bool{false, true, false}
	a.away[2] = true
	require.ErrorIs(t, a.Fence(t.Context(), overB), errNotAdmitted)
	a.away[2] = false
	require.NoError(t, a.Fence(t.Context(), overB))
	require.True(t, b.nexus[1].mayWrite())
}

// overB is targetB when its lease is over.
var overB = Target{Host: 2, Name: "b", Key: keyB, LeaseOver: true}

func TestMembers_OneIsMissing_RegistersOnTheOthers(t *testing.T) {
	f := newFabric(t, 3)
	b := f.joined(Config{Key: keyB}, 1)
	require.Equal(t, 2, b.writes())
	require.Len(t, b.refused, 1)
	require.ErrorContains(t, b.refused[1], "member disk 2: it is missing")

	require.NoError(t, b.returns(t.Context(), 1))
	require.Equal(t, 3, b.writes())
	require.NoError(t, b.Unregister(t.Context()))
	for _, l := range f.luns {
		require.Empty(t, l.registered)
	}
	b.nexus[1].before = func(cdb []byte) { t.Errorf("command %x was sent", cdb) }
	require.Error(t, b.Admit(t.Context(), 1, Disk{Path: "1"}), "it has left")
	require.Empty(t, f.luns[1].registered)
}

func TestMembers_NoMajority_RegisterFails(t *testing.T) {
	f := newFabric(t, 3)
	require.Error(t, f.host(Config{Key: keyB}, 0, 1).Register(t.Context()))
	f.luns[0].none, f.luns[1].none = true, true
	require.ErrorIs(t, f.host(Config{Key: keyB}).Register(t.Context()), ErrUnsupported)
}

// TestMembers_LeaseRuns_FencesOnAll: a write that began before may end later, on a member where the target has
// its key (ALL).
func TestMembers_LeaseRuns_FencesOnAll(t *testing.T) {
	f := newFabric(t, 3)
	a, b := f.joined(Config{Key: keyA}), f.joined(Config{Key: keyB})
	a.away[2] = true
	require.ErrorIs(t, a.Fence(t.Context(), targetB), unix.ENOENT)
	require.Equal(t, 1, b.writes())
	a.away[2] = false
	require.NoError(t, a.Fence(t.Context(), targetB))
	require.Zero(t, b.writes())
}

func TestMembers_LeaseIsOver_AMajoritySuffices(t *testing.T) {
	for members := 3; members <= 5; members += 2 {
		f := newFabric(t, members)
		a, b := f.joined(Config{Key: keyA}), f.joined(Config{Key: keyB})
		for i := range members / 2 {
			a.away[i] = true
		}
		require.NoError(t, a.Fence(t.Context(), overB))
		require.Equal(t, members/2, b.writes())

		a.away[members-1] = true
		require.ErrorIs(t, a.Fence(t.Context(), overB), unix.ENOENT)
	}
}

// TestMembers_OneHangs_IsNotWaitedFor: the majority has confirmed.
func TestMembers_OneHangs_IsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, 3)
		a, b := f.joined(Config{Key: keyA}), f.joined(Config{Key: keyB})
		hung := make(chan struct{})
		a.nexus[1].before = func([]byte) { <-hung }
		begun := time.Now()
		require.NoError(t, a.Fence(t.Context(), overB))
		require.Equal(t, laggards, time.Since(begun))
		require.Equal(t, 1, b.writes())
		close(hung)
		synctest.Wait()
	})
}

// TestMembers_FencedOnAMajority_FindsOut: a host without its key on fewer members does not give up.
func TestMembers_FencedOnAMajority_FindsOut(t *testing.T) {
	f := newFabric(t, 3)
	a, b := f.joined(Config{Key: keyA}), f.joined(Config{Key: keyB})
	a.away[1], a.away[2] = true, true
	require.Error(t, a.Fence(t.Context(), overB))
	other := Target{Host: 3, Name: "c", Key: Key(3, 1), LeaseOver: true}
	require.NoError(t, b.Fence(t.Context(), other))
	other.LeaseOver = false
	err := b.Fence(t.Context(), other)
	require.ErrorIs(t, err, ErrUnconfirmed)
	require.NotErrorIs(t, err, ErrFenced)
	again := f.host(Config{Key: keyB, Resumed: true})
	again.nexus = b.nexus
	require.NoError(t, again.Register(t.Context()))
	require.ErrorIs(t, again.refused[0], ErrFenced)

	a.away[1] = false
	require.NoError(t, a.Fence(t.Context(), overB))
	require.ErrorIs(t, b.Fence(t.Context(), other), ErrFenced)
	again = f.host(Config{Key: keyB, Resumed: true})
	again.nexus = b.nexus
	require.ErrorIs(t, again.Register(t.Context()), ErrFenced)
}

// TestAdmit_FencedMeanwhile_TakesTheKeyBack: with it the host would have a majority again (LATE).
func TestAdmit_FencedMeanwhile_TakesTheKeyBack(t *testing.T) {
	f := newFabric(t, 5)
	a, b := f.joined(Config{Key: keyA}, 0, 1), f.joined(Config{Key: keyB}, 3, 4)
	b.nexus[3].before = func(cdb []byte) {
		if action(cdb[1]) == registerIgnore && cdb[0] == opPersistentReserveOut {
			b.nexus[3].before = nil
			require.NoError(t, a.Fence(t.Context(), overB))
		}
	}
	require.ErrorIs(t, b.returns(t.Context(), 3), ErrUnconfirmed)
	require.Error(t, b.returns(t.Context(), 4))
	require.Equal(t, 2, b.writes())
	for _, l := range f.luns[2:] {
		require.Len(t, l.registered, 1)
	}
}

// TestFence_TargetRegistersMeanwhile_FencesItThere: its key was not on that member yet (LATE).
func TestFence_TargetRegistersMeanwhile_FencesItThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t, 5)
		a, b := f.joined(Config{Key: keyA}, 0, 1), f.joined(Config{Key: keyB}, 3, 4)
		a.nexus[2].before = func(cdb []byte) {
			if cdb[0] == opPersistentReserveOut {
				a.nexus[2].before = nil
				time.Sleep(laggards) // the others are done
				require.NoError(t, b.returns(t.Context(), 3))
				require.Equal(t, 4, b.writes())
			}
		}
		require.NoError(t, a.Fence(t.Context(), overB))
		require.Equal(t, 2, b.writes())
	})
}

// TestAdmit_WhileOthersFence_NeverHasAMajority lets the commands of a host that is fenced, and registers on
// other members, and those of the host that fences it happen in many orders (LATE).
func TestAdmit_WhileOthersFence_NeverHasAMajority(t *testing.T) {
	fenced, admitted := 0, 0
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric(t, 5)
			a, b := f.joined(Config{Key: keyA}, 0, 1), f.joined(Config{Key: keyB}, 3, 4)
			r := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			for _, n := range append(a.nexus[2:], b.nexus...) {
				slowest := 1 << r.IntN(6)
				n.before = func([]byte) {
					mu.Lock()
					d := time.Duration(r.IntN(slowest)) * time.Millisecond
					mu.Unlock()
					time.Sleep(d)
				}
			}
			var all sync.WaitGroup
			for i := 3; i < 5; i++ {
				all.Go(func() {
					for range 2 {
						if b.returns(t.Context(), i) == nil {
							return
						}
					}
				})
			}
			time.Sleep(time.Duration(seed%160) * time.Millisecond)
			err := a.Fence(t.Context(), overB)
			if err == nil {
				fenced++
				require.LessOrEqual(t, b.writes(), 2, "seed %d", seed)
			}
			all.Wait()
			if err == nil {
				require.LessOrEqual(t, b.writes(), 2, "seed %d", seed)
			}
			if b.members.admitted[3].Load() != nil {
				admitted++
			}
		})
	}
	require.Greater(t, fenced, 100)
	require.Greater(t, admitted, 20)
}

// TestMembers_PathLeadsToAnotherDisk_CountsOnce: the key of the fencing host is there as well.
func TestMembers_PathLeadsToAnotherDisk_CountsOnce(t *testing.T) {
	f := newFabric(t, 3)
	a, b := f.joined(Config{Key: keyA}), f.joined(Config{Key: keyB})
	for i := range f.luns {
		a.names[i] = fmt.Sprint("disk", i)
		require.NoError(t, a.Admit(t.Context(), i, Disk{Path: fmt.Sprint(i), Name: a.names[i]}))
	}
	a.away[2] = true
	a.nexus[1], a.names[1] = a.nexus[0], a.names[0]
	require.ErrorContains(t, a.Fence(t.Context(), overB), "the path leads to disk0, want disk1")
	require.Equal(t, 2, b.writes())
}
