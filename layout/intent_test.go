package layout

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestIntentRoundTrip(t *testing.T) {
	s := Space{UUID: UUID{1}, Geometry: Geometry{Stride: 512, Hosts: 8, Locks: 4}}
	for _, i := range []Intent{
		{Lock: 1, Name: "x", Permits: 1, Creation: 1},
		{Lock: 4, Name: strings.Repeat("ü", MaxLockName/2), Permits: MaxHosts, Creation: MaxCreation},
		{Lock: 2, Creation: 7}, // of a removal
	} {
		got, err := s.DecodeIntent(i.Value())
		require.NoError(t, err)
		require.Equal(t, i, got)
	}
}

func TestDecodeIntent_Malformed_IsRefused(t *testing.T) {
	s := Space{UUID: UUID{1}, Geometry: Geometry{Stride: 512, Hosts: 8, Locks: 4}}
	good := Intent{Lock: 1, Name: "x", Permits: 1, Creation: 1}.Value()
	for _, value := range [][]byte{nil, good[:len(good)-1], append(good[:len(good):len(good)], 0), good[:15]} {
		_, err := s.DecodeIntent(value)
		require.ErrorIs(t, err, ErrShort)
	}
	for _, i := range []Intent{
		{Lock: 5, Name: "x", Permits: 1, Creation: 1}, {Name: "x", Permits: 1, Creation: 1}, {Lock: 1, Name: "x", Permits: 1},
		{Lock: 1, Name: "a\nb", Permits: 1, Creation: 1}, {Lock: 1, Name: "x", Creation: 1},
		{Lock: 1, Name: "x", Permits: 1, Creation: MaxCreation + 1},
	} {
		_, err := s.DecodeIntent(i.Value())
		require.ErrorIs(t, err, ErrField, "%+v", i)
	}
	rapid.Check(t, func(t *rapid.T) {
		_, _ = s.DecodeIntent(rapid.SliceOfN(rapid.Byte(), 0, MaxValue).Draw(t, "value")) // does not panic
	})
}
