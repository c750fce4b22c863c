package registry

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

func TestRegistry_BeginAdd_ComparesNameDiskAndID(t *testing.T) {
	for _, test := range []struct {
		name  string
		state State // of lockspace ls with host id 1
		want  wire.Lockspace
		code  wire.Code
	}{
		{"another one", Present, wire.Lockspace{Name: "b", HostID: 1, Disk: here(1 << 20)}, none},
		{"without a name", Present, wire.Lockspace{HostID: 1, Disk: here(1 << 20)}, invalid},
		{"without an id", Present, wire.Lockspace{Name: "b", Disk: here(1 << 20)}, invalid},
		{"without a disk", Present, wire.Lockspace{Name: "b", HostID: 1}, invalid},
		{"the same", Present, lockspace("ls", 1), exists},
		{"the same, being added", Adding, lockspace("ls", 1), wire.Errno(syscall.EINPROGRESS)},
		{"the same, being removed", Removing, lockspace("ls", 1), again},
		{"another id", Present, lockspace("ls", 2), invalid},
		{"another disk", Present, wire.Lockspace{Name: "ls", HostID: 1, Disk: here(1 << 20)}, invalid},
		{"another name", Present, lockspace("b", 1), invalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, _, _ := joined(t)
			r.Spaces["ls"].State = test.state
			s, code := r.BeginAdd(test.want, 7)
			require.Equal(t, test.code, code)
			if code != none {
				require.Nil(t, s)
				require.Len(t, r.Spaces, 1)
				return
			}
			require.Equal(t, &Space{Lockspace: test.want, IOTimeout: 7, State: Adding}, r.Spaces[test.want.Name])
		})
	}
}

func TestRegistry_Inquire_ByState(t *testing.T) {
	for _, test := range []struct {
		name  string
		state State
		want  wire.Lockspace
		code  wire.Code
	}{
		{"present", Present, lockspace("ls", 1), none},
		{"any id", Present, lockspace("ls", 0), none},
		{"another id", Present, lockspace("ls", 2), missing},
		{"another disk", Present, wire.Lockspace{Name: "ls", HostID: 1, Disk: here(1 << 20)}, missing},
		{"another name", Present, lockspace("b", 1), missing},
		{"being added", Adding, lockspace("ls", 1), wire.Errno(syscall.EINPROGRESS)},
		{"its clients are being stopped", Removing, lockspace("ls", 1), none},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, _, _ := joined(t)
			r.Spaces["ls"].State = test.state
			require.Equal(t, test.code, r.Inquire(test.want))
		})
	}
}

func TestRegistry_BeginRemove_RefusesUse(t *testing.T) {
	r, a, _ := joined(t)
	_, _, code := r.BeginRemove(lockspace("ls", 2), false)
	require.Equal(t, missing, code)
	_, _, code = r.BeginRemove(lockspace("b", 1), false)
	require.Equal(t, missing, code)
	res := acquired(t, r, a, resource("x", wire.ResPersistent), 0)
	_, _, code = r.BeginRemove(lockspace("ls", 1), true)
	require.Equal(t, busy, code, "a client has a resource")
	r.Gone(a.ID)
	require.True(t, res.Orphan())
	_, _, code = r.BeginRemove(lockspace("ls", 1), true)
	require.Equal(t, busy, code, "there is an orphan")
	require.False(t, r.Spaces["ls"].Dead)

	s, was, code := r.BeginRemove(lockspace("ls", 1), false)
	require.Equal(t, none, code)
	require.Equal(t, Present, was)
	require.Equal(t, Removing, s.State)
	require.True(t, s.Dead)
	_, was, code = r.BeginRemove(lockspace("ls", 0), false)
	require.Equal(t, none, code)
	require.Equal(t, Removing, was, "another command removes it already")
}

func TestRegistry_Blocked_NamesTheCause(t *testing.T) {
	r, a, _ := joined(t)
	s := r.Spaces["ls"]
	require.Empty(t, r.Blocked(s))
	s.Used = true
	require.Equal(t, "the setting used", r.Blocked(s))
	res := acquired(t, r, a, resource("x", wire.ResPersistent), 0)
	require.Equal(t, "resource x", r.Blocked(s))
	r.Gone(a.ID)
	require.True(t, res.Orphan())
	s.Used = false
	require.Empty(t, r.Blocked(s), "orphans end with the lockspace")
	s.UsedByOrphans = true
	require.Equal(t, "orphan x", r.Blocked(s))
	require.Equal(t, []*Resource{res}, r.BeginReleaseOrphans(Key{"ls", "x"}))
	require.Equal(t, "resource x", r.Blocked(s), "it is being released")
	r.Drop(res)
	require.Empty(t, r.Blocked(s))
}

func TestRegistry_Configure_SetsAndClears(t *testing.T) {
	r, _, _ := joined(t)
	s := r.Spaces["ls"]
	require.Equal(t, missing, r.Configure("b", wire.ConfigUsed))
	require.Equal(t, invalid, r.Configure("ls", 0))
	require.Equal(t, invalid, r.Configure("ls", wire.ConfigUsed|wire.ConfigUnused))
	for _, step := range []struct {
		what       uint32
		used, byOr bool
	}{
		{wire.ConfigUsed, true, false},
		{wire.ConfigUsedByOrphans, true, true},
		{wire.ConfigUnused, false, true},
		{wire.ConfigUnusedByOrphans, false, false},
	} {
		require.Equal(t, none, r.Configure("ls", step.what))
		require.Equal(t, []bool{step.used, step.byOr}, []bool{s.Used, s.UsedByOrphans}, "%#x", step.what)
	}
	s.State = Adding
	require.Equal(t, missing, r.Configure("ls", wire.ConfigUsed))
}

// TestRegistry_Configure_WhileRemoved: a lockspace that waits for unused to be set can be left then.
func TestRegistry_Configure_WhileRemoved(t *testing.T) {
	r, _, _ := joined(t)
	require.Equal(t, none, r.Configure("ls", wire.ConfigUsed))
	s, _, code := r.BeginRemove(lockspace("ls", 1), false)
	require.Equal(t, none, code)
	require.Equal(t, "the setting used", r.Blocked(s))
	require.Equal(t, noSpace, r.Configure("ls", wire.ConfigUsed))
	require.Equal(t, noSpace, r.Configure("ls", wire.ConfigUsedByOrphans))
	require.Equal(t, none, r.Configure("ls", wire.ConfigUnused))
	require.Empty(t, r.Blocked(s))
}
