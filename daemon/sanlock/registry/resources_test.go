package registry

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

func TestRegistry_BeginAcquire_ByStateAndFlags(t *testing.T) {
	const ex, sh = 0, wire.ResShared
	const orphan, only, lvb = wire.AcquireOrphan, wire.AcquireOrphanOnly, wire.AcquireLVB
	nothing := func(*testing.T, *Registry, *Client, *Client) {}
	heldBy := func(mode uint32, other bool) func(*testing.T, *Registry, *Client, *Client) {
		return func(t *testing.T, r *Registry, a, b *Client) {
			if other {
				a = b
			}
			acquired(t, r, a, resource("x", mode), 0)
		}
	}
	orphanOf := func(mode uint32) func(*testing.T, *Registry, *Client, *Client) {
		return func(t *testing.T, r *Registry, _, b *Client) {
			acquired(t, r, b, resource("x", mode|wire.ResPersistent), 0)
			r.Gone(b.ID)
		}
	}
	inState := func(s State) func(*testing.T, *Registry, *Client, *Client) {
		return func(t *testing.T, r *Registry, _, b *Client) { acquired(t, r, b, resource("x", sh), 0).State = s }
	}
	for _, test := range []struct {
		name   string
		before func(t *testing.T, r *Registry, a, b *Client)
		mode   uint32
		flags  uint32
		fresh  bool
		code   wire.Code
	}{
		{"free", nothing, ex, 0, true, none},
		{"free, shared", nothing, sh, 0, true, none},
		{"free, or an orphan", nothing, ex, orphan, true, none},
		{"free, only an orphan", nothing, ex, only, false, missing},
		{"free, only an orphan, with LVB", nothing, ex, orphan | only | lvb, false, missing},
		{"held by itself", heldBy(ex, false), ex, 0, false, exists},
		{"held by itself, orphan", heldBy(ex, false), ex, orphan, false, exists},
		{"held by another client", heldBy(ex, true), ex, 0, false, exists},
		{"held by another client, shared", heldBy(ex, true), sh, 0, false, exists},
		{"shared by another client, exclusive", heldBy(sh, true), ex, 0, false, exists},
		{"shared by itself, exclusive", heldBy(sh, false), ex, 0, false, exists},
		{"shared by another client", heldBy(sh, true), sh, 0, false, none},
		{"shared by itself", heldBy(sh, false), sh, 0, false, none},
		{"orphan, not adopted", orphanOf(ex), ex, 0, false, orphaned},
		{"shared orphan, not adopted", orphanOf(sh), sh, 0, false, orphaned},
		{"orphan, adopted", orphanOf(ex), ex, orphan, false, none},
		{"orphan, adopted only", orphanOf(ex), ex, only, false, none},
		{"shared orphan, adopted", orphanOf(sh), sh, orphan, false, none},
		{"orphan of another mode", orphanOf(ex), sh, orphan, false, orphaned},
		{"shared orphan of another mode", orphanOf(sh), ex, orphan | only, false, orphaned},
		{"being released", inState(Removing), sh, 0, false, again},
		{"being released, orphan", inState(Removing), sh, orphan, false, again},
		{"being acquired", inState(Adding), sh, 0, false, busy},
		{"being acquired by itself", func(t *testing.T, r *Registry, a, _ *Client) { acquired(t, r, a, resource("x", sh), 0).State = Adding }, sh, 0, false, exists},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, a, b := joined(t)
			test.before(t, r, a, b)
			before := len(r.Of(a.ID))
			res, fresh, code := r.BeginAcquire(a, resource("x", test.mode), test.flags)
			require.Equal(t, test.code, code)
			require.Equal(t, test.fresh, fresh)
			if code != none {
				require.Nil(t, res)
				require.Len(t, r.Of(a.ID), before)
				return
			}
			require.Contains(t, res.Users, a.ID)
			require.Equal(t, test.mode == sh, res.Shared)
			require.Equal(t, test.fresh, res.State == Adding)
		})
	}
}

func TestRegistry_BeginAcquire_NeedsALockspaceAndADisk(t *testing.T) {
	r, a, _ := joined(t)
	want := resource("x", 0)
	want.Disks = nil
	_, _, code := r.BeginAcquire(a, want, 0)
	require.Equal(t, wire.Errno(syscall.ERANGE), code)
	want = resource("x", 0)
	want.Lockspace = "b"
	_, _, code = r.BeginAcquire(a, want, 0)
	require.Equal(t, noSpace, code)
	for _, s := range []Space{{State: Adding}, {State: Removing}, {State: Present, Dead: true}} {
		r.Spaces["ls"].State, r.Spaces["ls"].Dead = s.State, s.Dead
		_, _, code = r.BeginAcquire(a, resource("x", 0), 0)
		require.Equal(t, noSpace, code)
	}
	require.Empty(t, r.Resources)
}

// TestRegistry_BeginAcquire_AddsFlags: the users of a resource share its value block and its persistence.
func TestRegistry_BeginAcquire_AddsFlags(t *testing.T) {
	r, a, b := joined(t)
	res := acquired(t, r, a, resource("x", wire.ResShared), 0)
	require.False(t, res.LVB || res.Persistent)
	acquired(t, r, b, resource("x", wire.ResShared|wire.ResPersistent), wire.AcquireLVB)
	require.True(t, res.LVB && res.Persistent)
	acquired(t, r, a, resource("x", wire.ResShared), 0)
	require.True(t, res.LVB && res.Persistent)
	require.Equal(t, []int{a.ID, b.ID, a.ID}, res.Users)
}

func TestRegistry_Undo_ReleasesWithTheLastUser(t *testing.T) {
	r, a, b := joined(t)
	res := acquired(t, r, a, resource("x", wire.ResShared), 0)
	acquired(t, r, b, resource("x", wire.ResShared), 0)
	acquired(t, r, b, resource("x", wire.ResShared), 0)
	require.False(t, r.Undo(b, res), "it has it twice")
	require.False(t, r.Undo(b, res))
	require.Equal(t, []int{a.ID}, res.Users)
	require.True(t, r.Undo(a, res))
	require.Equal(t, Removing, res.State)
	require.False(t, r.Undo(a, res), "it is being released already")
}

func TestRegistry_Has_OnlyOfAUser(t *testing.T) {
	r, a, b := joined(t)
	res := acquired(t, r, a, resource("x", wire.ResPersistent), 0)
	for _, of := range []struct {
		by  *Client
		key Key
	}{{b, res.Key()}, {a, Key{"ls", "y"}}, {a, Key{"b", "x"}}} {
		_, code := r.Has(of.by, of.key)
		require.Equal(t, wire.Code(-1), code)
	}
	got, code := r.Has(a, res.Key())
	require.Equal(t, none, code)
	require.Same(t, res, got)
	require.True(t, r.Undo(a, res), "persistent or not")
	_, code = r.Has(a, res.Key())
	require.Equal(t, wire.Code(-1), code)
}

func TestRegistry_BeginReleaseOrphans_OneOrAll(t *testing.T) {
	r, a, b := joined(t)
	var orphans []*Resource
	for _, name := range []string{"o1", "o2", "o3"} {
		orphans = append(orphans, acquired(t, r, a, resource(name, wire.ResPersistent), 0))
	}
	acquired(t, r, b, resource("held", wire.ResPersistent), 0)
	r.Gone(a.ID)
	require.Empty(t, r.BeginReleaseOrphans(Key{"ls", "held"}))
	require.Empty(t, r.BeginReleaseOrphans(Key{"ls", "unknown"}))
	require.Empty(t, r.BeginReleaseOrphans(Key{"b", ""}))
	require.Equal(t, orphans[1:2], r.BeginReleaseOrphans(Key{"ls", "o2"}))
	require.Empty(t, r.BeginReleaseOrphans(Key{"ls", "o2"}), "it is being released")
	require.Equal(t, []*Resource{orphans[0], orphans[2]}, r.BeginReleaseOrphans(Key{"ls", ""}))
}

// TestRegistry_Withdraw_LeavesAnOrphan: what a client got of others is as it was before it.
func TestRegistry_Withdraw_LeavesAnOrphan(t *testing.T) {
	r, a, b := joined(t)
	orphan := acquired(t, r, a, resource("orphan", wire.ResPersistent), 0)
	shared := acquired(t, r, a, resource("shared", wire.ResShared), 0)
	acquired(t, r, b, resource("shared", wire.ResShared), 0)
	require.Equal(t, []*Resource(nil), r.Gone(a.ID))
	acquired(t, r, b, resource("orphan", 0), wire.AcquireOrphan)
	require.False(t, r.Withdraw(b, orphan))
	require.True(t, orphan.Orphan())
	require.True(t, r.Withdraw(b, shared), "its other user has ended meanwhile")
	require.Equal(t, Removing, shared.State)
	require.False(t, shared.Orphan())
}

func TestResource_Alone_ExclusivelyOfAClient(t *testing.T) {
	r, a, b := joined(t)
	res := acquired(t, r, a, resource("x", 0), 0)
	require.True(t, res.Alone(a))
	require.False(t, res.Alone(b))
	require.False(t, acquired(t, r, a, resource("shared", wire.ResShared), 0).Alone(a))
	r.Undo(a, res)
	require.False(t, res.Alone(a))
}

func TestResource_EndConvert_SetsTheMode(t *testing.T) {
	r, a, b := joined(t)
	res := acquired(t, r, a, resource("x", wire.ResPersistent), 0)
	for _, shared := range []bool{true, true, false} {
		res.Converting = true
		res.EndConvert(shared)
		require.Equal(t, shared, res.Shared)
		require.Equal(t, shared, res.Flags&wire.ResShared != 0)
		require.NotZero(t, res.Flags&wire.ResPersistent)
		require.False(t, res.Converting)
	}
	res.EndConvert(true)
	_, code := r.BeginConvert(a, resource("x", 0))
	require.Equal(t, none, code)
	_, _, code = r.BeginAcquire(b, resource("x", wire.ResShared), 0)
	require.Equal(t, busy, code, "it is being converted")
	res.EndConvert(false)
	_, _, code = r.BeginAcquire(b, resource("x", wire.ResShared), 0)
	require.Equal(t, exists, code)
}

// TestRegistry_Drop_SparesAnother: a resource of the same name that was acquired meanwhile stays.
func TestRegistry_Drop_SparesAnother(t *testing.T) {
	r, a, _ := joined(t)
	old := acquired(t, r, a, resource("x", 0), 0)
	r.Drop(old)
	require.Empty(t, r.Resources)
	acquired(t, r, a, resource("x", 0), 0)
	r.Drop(old)
	require.Len(t, r.Resources, 1)
}

func TestRegistry_BeginConvert_NeedsTheOnlyUser(t *testing.T) {
	r, a, b := joined(t)
	exclusive := acquired(t, r, a, resource("ex", 0), 0)
	shared := acquired(t, r, a, resource("sh", wire.ResShared), 0)
	acquired(t, r, a, resource("both", wire.ResShared), 0)
	acquired(t, r, b, resource("both", wire.ResShared), 0)
	for _, test := range []struct {
		name string
		by   *Client
		want wire.Resource
		res  *Resource
		code wire.Code
	}{
		{"unknown", a, resource("y", 0), nil, missing},
		{"another client's", b, resource("ex", wire.ResShared), nil, missing},
		{"exclusive already", a, resource("ex", 0), nil, wire.Errno(syscall.EALREADY)},
		{"shared already", a, resource("sh", wire.ResShared), nil, wire.Errno(syscall.EALREADY)},
		{"to shared", a, resource("ex", wire.ResShared), exclusive, none},
		{"to exclusive", a, resource("sh", 0), shared, none},
		{"to exclusive, with another user", a, resource("both", 0), nil, again},
	} {
		t.Run(test.name, func(t *testing.T) {
			res, code := r.BeginConvert(test.by, test.want)
			require.Equal(t, test.code, code)
			require.Same(t, test.res, res)
		})
	}
}

func TestRegistry_Held_WithAValueBlock(t *testing.T) {
	r, a, _ := joined(t)
	_, code := r.Held(Key{"ls", "x"})
	require.Equal(t, missing, code)
	res := acquired(t, r, a, resource("x", wire.ResPersistent), wire.AcquireLVB)
	got, code := r.Held(res.Key())
	require.Equal(t, none, code)
	require.Same(t, res, got)
	plain := acquired(t, r, a, resource("plain", 0), 0)
	_, code = r.Held(plain.Key())
	require.Equal(t, invalid, code)
	for _, s := range []State{Adding, Removing} {
		res.State = s
		_, code = r.Held(res.Key())
		require.Equal(t, missing, code)
	}
	res.State = Present
	r.Gone(a.ID)
	_, code = r.Held(res.Key())
	require.Equal(t, missing, code, "an orphan is of no client")
}
