package hosts

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// TestName_IsInjective: two resources never have one lock, nor a resource that of a host id.
func TestName_IsInjective(t *testing.T) {
	anyName := rapid.OneOf(rapid.StringMatching(`[a%/ 2F]{0,4}`), rapid.StringN(0, wire.NameLen, wire.NameLen), rapid.SampledFrom([]string{"host", "host/1"}))
	rapid.Check(t, func(t *rapid.T) {
		a := [2]string{anyName.Draw(t, "lockspace"), anyName.Draw(t, "name")}
		b := [2]string{anyName.Draw(t, "other lockspace"), anyName.Draw(t, "other name")}
		require.Equal(t, a == b, Name(a[0], a[1]) == Name(b[0], b[1]))
		require.NotEqual(t, Name(a[0], a[1]), Lock(wire.Lockspace{Name: b[0], HostID: 1}))
		for _, r := range Name(a[0], a[1]) {
			require.True(t, r > ' ' && r < 0x7f, "%q", r)
		}
	})
}

// TestMax_AsSanlock: the number of host ids depends on the alignment, for sectors of 4096 bytes.
func TestMax_AsSanlock(t *testing.T) {
	for flags, want := range map[uint32]uint64{
		wire.Align1M | wire.Sector512: 2000, wire.Align1M | wire.Sector4K: 250, wire.Align2M | wire.Sector4K: 500,
		wire.Align4M | wire.Sector4K: 1000, wire.Align8M | wire.Sector4K: 2000,
	} {
		require.Equal(t, want, Max(flags), "%#x", flags)
	}
}
