package fdlimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func isRoot(uid int) bool { return uid == 0 }

func TestDescriptors_OneUser_LeavesTheRest(t *testing.T) {
	d := NewBudget(40, isRoot)
	for range 10 {
		require.NoError(t, d.Take(1000))
	}
	require.ErrorContains(t, d.Take(1000), "user 1000 has the 10 file descriptors that one user may have")
	require.NoError(t, d.Take(1001))
	d.Give(1000)
	require.NoError(t, d.Take(1000))
}

func TestDescriptors_ManyUsers_LeaveAReserve(t *testing.T) {
	d := NewBudget(40, isRoot)
	for uid := range 35 {
		require.NoError(t, d.Take(1000+uid))
	}
	require.ErrorContains(t, d.Take(2000), "all 35 file descriptors that are for users other than root")
	for range 5 {
		require.NoError(t, d.Take(0))
	}
	require.ErrorContains(t, d.Take(0), "all 40 file descriptors")
	for uid := range 35 {
		d.Give(1000 + uid)
	}
	require.Equal(t, map[int]int{0: 5}, d.byUser)
}

// TestLookersLeaveTheRest: connections over an address take a part of the descriptors, and no more.
func TestLookersLeaveTheRest(t *testing.T) {
	const root = 0
	clients := NewBudget(40, func(uid int) bool { return uid == root })
	looking := clients.ForReaders()
	for range 10 {
		require.NoError(t, looking.Take(UnknownUser))
	}
	require.Error(t, looking.Take(UnknownUser))
	for range 30 {
		require.NoError(t, clients.Take(root))
	}
	require.Error(t, clients.Take(root))
	looking.Give(UnknownUser)
	require.NoError(t, clients.Take(root))
	require.Error(t, looking.Take(UnknownUser), "the others have it now")
	for range 6 {
		clients.Give(root)
	}
	require.NoError(t, looking.Take(UnknownUser), "beyond what is for root")
	require.Equal(t, MaxReaders, NewBudget(500_000, nil).ForReaders().Limit)
}

// TestLimits: this process has enough, or no test here would pass.
func TestLimits(t *testing.T) {
	require.NoError(t, CheckLimits())
	require.GreaterOrEqual(t, openFiles(), leastDescriptors)
}
