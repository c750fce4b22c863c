package layout_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestEncodeFillsTheBuffer(t *testing.T) {
	for _, s := range sectors() {
		t.Run(s.name, func(t *testing.T) {
			want := encoded(t, s)
			for _, size := range []int{512, 4096, 65536} {
				backing := bytes.Repeat([]byte{0xa5}, size+512)
				require.NoError(t, s.encode(backing[:size], s.record))
				require.Equal(t, want, backing[:512])
				require.Equal(t, make([]byte, size-512), backing[512:size])
				require.Equal(t, bytes.Repeat([]byte{0xa5}, 512), backing[size:], "guard bytes")
				backing[size-1] ^= 1
				if size > 512 {
					found, err := s.decode(backing[:size])
					require.NoError(t, err, "what follows the record is ignored")
					require.Equal(t, s.record, found)
				}
			}
		})
	}
}

func TestShortBuffer(t *testing.T) {
	for _, s := range sectors() {
		t.Run(s.name, func(t *testing.T) {
			buf := encoded(t, s)
			for _, size := range []int{0, 1, 511} {
				_, err := s.decode(buf[:size])
				require.ErrorIs(t, err, layout.ErrShort)
				short := bytes.Repeat([]byte{0xa5}, size)
				require.ErrorIs(t, s.encode(short, s.record), layout.ErrShort)
				require.Equal(t, bytes.Repeat([]byte{0xa5}, size), short, "unchanged on an error")
			}
			_, err := s.decode(nil)
			require.ErrorIs(t, err, layout.ErrShort)
		})
	}
}

func TestDamage(t *testing.T) {
	for _, s := range sectors() {
		t.Run(s.name, func(t *testing.T) {
			buf := encoded(t, s)
			patch := func(at int, b ...byte) []byte {
				return append(append(bytes.Clone(buf[:at]), b...), buf[at+len(b):]...)
			}
			type damage struct {
				buf  []byte
				want error
			}
			cases := map[string]damage{
				"other magic":             {reseal(patch(0, 'X')), layout.ErrMagic},
				"magic before all":        {bytes.Repeat([]byte{0xff}, 512), layout.ErrMagic},
				"version 0":               {reseal(patch(4, 0)), layout.ErrVersion},
				"later version":           {reseal(patch(4, 3)), layout.ErrVersion},
				"version before checksum": {patch(4, 0, 1), layout.ErrVersion},
				"checksum":                {patch(8, ^buf[8]), layout.ErrChecksum},
				"body":                    {patch(511, 1), layout.ErrChecksum},
				"checksum before address": {patch(16, ^buf[16]), layout.ErrChecksum},
				"other address":           {reseal(patch(16, ^buf[16])), layout.ErrIdentity},
				"address beyond 63 bits":  {reseal(patch(23, 0x80)), layout.ErrIdentity},
				"reserved 6-7":            {reseal(patch(7, 1)), layout.ErrField},
				"reserved 12-15":          {reseal(patch(12, 1)), layout.ErrField},
				"reserved tail":           {reseal(patch(511, 1)), layout.ErrField},
				"other version":           {reseal(patch(4, 3-buf[4])), layout.ErrVersion},
			}
			magic := string(buf[:4])
			if magic == "BKSB" { // of either version, and then its fields say which one it is
				cases["other version"] = damage{reseal(patch(4, 3-buf[4])), layout.ErrField}
			}
			if s.space.Several {
				require.EqualValues(t, layout.VersionSeveral, buf[4])
				cases["position 0"] = damage{reseal(patch(6, 0)), layout.ErrField}
				cases["position 7"] = damage{reseal(patch(6, 7)), layout.ErrField}
				if magic == "BKHR" || magic == "BKSL" {
					delete(cases, "reserved 12-15") // the generation
				}
			} else {
				require.EqualValues(t, layout.Version, buf[4])
				cases["position"] = damage{reseal(patch(6, 1)), layout.ErrField}
			}
			for name, c := range cases {
				found, err := s.decode(c.buf)
				require.ErrorIs(t, err, c.want, name)
				require.Zero(t, found, name)
			}
		})
	}
}

func TestAnyFlippedBitIsRefused(t *testing.T) {
	zero := make([]byte, layout.RecordSize)
	for _, s := range sectors() {
		t.Run(s.name, func(t *testing.T) {
			for _, buf := range [][]byte{encoded(t, s), zero} {
				for bit := range 8 * layout.RecordSize {
					buf[bit/8] ^= 1 << (bit % 8)
					_, err := s.decode(buf)
					require.Error(t, err, "bit %d", bit)
					buf[bit/8] ^= 1 << (bit % 8)
				}
			}
		})
	}
}

func TestTornSectorIsRefused(t *testing.T) {
	newer := testSlot()
	newer.Phase, newer.Sequence, newer.Value = layout.Idle, 13, []byte("generation=19")
	before, after := encoded(t, slotSector("", testSlot())), encoded(t, slotSector("", newer))
	decode := slotSector("", newer).decode
	for cut := 1; cut < layout.RecordSize; cut++ {
		torn := append(bytes.Clone(after[:cut]), before[cut:]...)
		if _, err := decode(torn); err == nil {
			require.True(t, bytes.Equal(torn, after) || bytes.Equal(torn, before), "cut at %d", cut)
		}
	}
}

func TestMovedSectorIsRefused(t *testing.T) {
	all := sectors()
	place := strings.NewReplacer("-fence-after", "", "-vacant", "", "superblock-several", "superblock").Replace
	for _, s := range all {
		buf := encoded(t, s)
		for _, other := range all {
			if place(s.name) == place(other.name) {
				continue
			}
			_, err := other.decode(buf)
			require.Error(t, err, "%s read as %s", s.name, other.name)
		}
	}

	buf := encoded(t, hostSector("", testHost()))
	for id := 1; id <= 20; id++ {
		_, err := testSpace.DecodeHost(buf, id)
		require.Equal(t, id != 3, err != nil)
		if err != nil {
			require.ErrorIs(t, err, layout.ErrIdentity)
		}
	}
	buf = encoded(t, entrySector("", testEntry()))
	for lock := 1; lock <= 1000; lock++ {
		_, err := testSpace.DecodeEntry(buf, lock)
		require.Equal(t, lock != 7, err != nil)
	}
	buf = encoded(t, slotSector("", testSlot()))
	for lock := 0; lock <= 1000; lock++ {
		for host := 1; host <= 20; host++ {
			_, err := testSpace.DecodeSlot(buf, lock, host)
			require.Equal(t, lock != 7 || host != 3, err != nil)
		}
	}
}

// The numbers inside are checked even if the address is right.
func TestOtherNumberIsRefused(t *testing.T) {
	for _, c := range []struct {
		s  sector
		at int
	}{
		{hostSector("host", testHost()), 40},
		{entrySector("entry", testEntry()), 40},
		{slotSector("slot lock", testSlot()), 40},
		{slotSector("slot host", testSlot()), 44},
		{severalHostSector("host, several", severalHost()), 40},
		{severalEntrySector("entry, several", severalEntry()), 40},
		{severalSlotSector("slot lock, several", severalSlot()), 40},
		{severalSlotSector("slot host, several", severalSlot()), 44},
	} {
		buf := encoded(t, c.s)
		buf[c.at]++
		_, err := c.s.decode(reseal(buf))
		require.ErrorIs(t, err, layout.ErrIdentity, c.s.name)
	}
}

func TestOtherLockspaceIsRefused(t *testing.T) {
	other := layout.Space{UUID: testUUID, Geometry: testSpace.Geometry}
	other.UUID[15]++
	_, err := other.DecodeHost(encoded(t, hostSector("", testHost())), 3)
	require.ErrorIs(t, err, layout.ErrIdentity)
	require.ErrorContains(t, err, testUUID.String())
	require.ErrorContains(t, err, other.UUID.String())
	_, err = other.DecodeEntry(encoded(t, entrySector("", testEntry())), 7)
	require.ErrorIs(t, err, layout.ErrIdentity)
	_, err = other.DecodeSlot(encoded(t, slotSector("", testSlot())), 7, 3)
	require.ErrorIs(t, err, layout.ErrIdentity)
}

func TestBlank(t *testing.T) {
	zero := make([]byte, layout.RecordSize)
	for _, space := range []layout.Space{testSpace, severalSpace} {
		host, err := space.DecodeHost(zero, 3)
		require.NoError(t, err)
		require.True(t, host.Blank())
		require.Equal(t, layout.HostRecord{ID: 3}, host)
		entry, err := space.DecodeEntry(zero, 7)
		require.NoError(t, err)
		require.True(t, entry.Blank() && entry.Free())
		require.Equal(t, layout.Entry{Lock: 7}, entry)
		slot, err := space.DecodeSlot(zero, 0, 3)
		require.NoError(t, err)
		require.True(t, slot.Blank())
		require.Equal(t, layout.Slot{Host: 3}, slot)

		// No host writes a blank record: it would erase the ticket that tokens continue from.
		buf := bytes.Repeat([]byte{0xa5}, layout.RecordSize)
		require.ErrorIs(t, space.EncodeHost(buf, host), layout.ErrField)
		require.ErrorIs(t, space.EncodeEntry(buf, entry), layout.ErrField)
		require.ErrorIs(t, space.EncodeSlot(buf, slot), layout.ErrField)
		require.Equal(t, bytes.Repeat([]byte{0xa5}, layout.RecordSize), buf, "unchanged on an error")
	}
	_, err := layout.DecodeSuperblock(zero, 0)
	require.ErrorIs(t, err, layout.ErrBlank)

	require.False(t, testHost().Blank())
	require.False(t, testSlot().Blank())
	require.False(t, testEntry().Free() || testEntry().Blank())
	removed := layout.Entry{Lock: 7, Creation: 10}
	require.True(t, removed.Free())
	require.False(t, removed.Blank())
}

func TestSpaceWithoutUUIDWritesNothing(t *testing.T) {
	buf := make([]byte, layout.RecordSize)
	space := layout.Space{Geometry: testSpace.Geometry}
	require.ErrorIs(t, space.EncodeHost(buf, testHost()), layout.ErrField)
	require.ErrorIs(t, space.EncodeEntry(buf, testEntry()), layout.ErrField)
	require.ErrorIs(t, space.EncodeSlot(buf, testSlot()), layout.ErrField)
}

func TestErrorsSayWhere(t *testing.T) {
	buf := encoded(t, slotSector("", testSlot()))
	buf[8] ^= 1
	_, err := testSpace.DecodeSlot(buf, 7, 3)
	require.Regexp(t, `^slot of host 3 in lock 7 at byte 4767744: checksum 0x[0-9a-f]{8}, want 0x[0-9a-f]{8}: damaged record$`, err.Error())

	slot := testSlot()
	slot.Value = make([]byte, 257)
	err = testSpace.EncodeSlot(buf, slot)
	require.EqualError(t, err, "slot of host 3 in lock 7: bytes of value 257, want 0 to 256: value not allowed")
	entry := testEntry()
	entry.Name = strings.Repeat("x", 129)
	err = testSpace.EncodeEntry(buf, entry)
	require.EqualError(t, err, "directory entry of lock 7: lock name of 129 bytes, want 1 to 128: value not allowed")
}

func TestAllocations(t *testing.T) {
	buf := make([]byte, 4096)
	for _, s := range sectors() {
		switch r := s.record.(type) {
		case layout.Superblock:
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Encode(buf, 0) }), s.name)
		case layout.HostRecord:
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.space.EncodeHost(buf, r) }), s.name)
		case layout.Entry:
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.space.EncodeEntry(buf, r) }), s.name)
		case layout.Slot:
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.space.EncodeSlot(buf, r) }), s.name)
		}
	}
	for _, space := range []layout.Space{testSpace, severalSpace} {
		slot := testSlot()
		slot.Value, slot.Holder.Command = nil, ""
		require.NoError(t, space.EncodeSlot(buf, slot))
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = space.DecodeSlot(buf, 7, 3) }))
		clear(buf)
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = space.DecodeSlot(buf, 7, 3) }))
	}
	require.NoError(t, severalSpace.EncodeSlot(buf, severalSlot()))
	require.Zero(t, testing.AllocsPerRun(100, func() { layout.PlaceCopy(buf, 4) }))
}

func BenchmarkEncodeSlot(b *testing.B) {
	b.ReportAllocs()
	slot, buf := testSlot(), make([]byte, 4096)
	for b.Loop() {
		if err := testSpace.EncodeSlot(buf, slot); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeSlot(b *testing.B) {
	waiting := testSlot()
	waiting.Value, waiting.Holder.Command = nil, ""
	for _, c := range []struct {
		name string
		buf  []byte
	}{
		{"blank", make([]byte, 512)},
		{"waiting", encoded(b, slotSector("", waiting))},
		{"held-with-value", encoded(b, slotSector("", testSlot()))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := testSpace.DecodeSlot(c.buf, 7, 3); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
