package layout

import (
	"math"
	"slices"
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

// An intent binds in a lockspace on several disks: it has the version that its host writes again.
func TestIntentRoundTrip_SeveralDisks(t *testing.T) {
	s := Space{UUID: UUID{1}, Geometry: Geometry{Stride: 512, Hosts: 8, Locks: 4}, Several: true}
	for _, i := range []Intent{
		{Lock: 1, Name: "x", Permits: 1, Creation: 1}, // does not bind
		{Lock: 1, Name: "x", Permits: 1, Creation: 1, Token: MakeTicket(0, 1)},
		{Lock: 1, Name: "x", Permits: 1, Creation: 1, Token: MakeTicket(7, 3).Grant(5), Sequence: 0x0102030405060708},
		{Lock: 4, Name: strings.Repeat("ü", MaxLockName/2), Permits: MaxHosts, Creation: MaxCreation,
			Token: MakeTicket(MaxNumber, 8).Grant(MaxGrants - 1), Sequence: math.MaxUint64},
		{Lock: 2, Creation: 7, Token: MakeTicket(9, 2), Sequence: 2}, // of a removal
	} {
		value := i.Value()
		got, err := s.DecodeIntent(value)
		require.NoError(t, err)
		require.Equal(t, i, got)
		require.NoError(t, ValidateValue(value))
		if size := 16 + len(i.Name); i.Token == 0 {
			require.Len(t, value, size)
		} else {
			require.Len(t, value, size+16)
			require.Equal(t, uint64(i.Token), le.Uint64(value[size:]))
			require.Equal(t, i.Sequence, le.Uint64(value[size+8:]))
			require.Equal(t, i.notBinding().Value(), value[:size])
		}
	}
}

func (i Intent) notBinding() Intent {
	i.Token, i.Sequence = 0, 0
	return i
}

func TestDecodeIntent_MalformedVersion_IsRefused(t *testing.T) {
	one := Space{UUID: UUID{1}, Geometry: Geometry{Stride: 512, Hosts: 8, Locks: 4}}
	several := one
	several.Several = true
	for _, binding := range []Intent{
		{Lock: 1, Name: "x", Permits: 1, Creation: 1, Token: MakeTicket(7, 3), Sequence: 2},
		{Lock: 1, Creation: 1, Token: MakeTicket(7, 3), Sequence: 2},
	} {
		value := binding.Value()
		_, err := several.DecodeIntent(value)
		require.NoError(t, err)
		_, err = one.DecodeIntent(value)
		require.ErrorIs(t, err, ErrShort, "one disk has no versions")
		from := len(value) - 16
		for n := from + 1; n < len(value); n++ {
			_, err := several.DecodeIntent(value[:n])
			require.ErrorIs(t, err, ErrShort, "%d bytes", n)
		}
		_, err = several.DecodeIntent(append(value[:len(value):len(value)], 0))
		require.ErrorIs(t, err, ErrShort)
		for _, token := range []uint64{0, 255, uint64(MakeTicket(7, 9)), 1<<63 | 3<<8} {
			bad := append(le.AppendUint64(slices.Clone(value[:from]), token), value[from+8:]...)
			got, err := several.DecodeIntent(bad)
			require.ErrorIs(t, err, ErrField, "token %d", token)
			require.Zero(t, got)
		}
	}
	_, err := several.DecodeIntent(Intent{Lock: 5, Name: "x", Permits: 1, Creation: 1, Token: MakeTicket(7, 3)}.Value())
	require.ErrorIs(t, err, ErrField, "the entry is checked as well")
	_, err = several.DecodeIntent(nil)
	require.ErrorIs(t, err, ErrShort)
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
		s.Several = rapid.Bool().Draw(t, "several")
		_, _ = s.DecodeIntent(rapid.SliceOfN(rapid.Byte(), 0, MaxValue).Draw(t, "value")) // does not panic
	})
}
