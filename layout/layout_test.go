package layout_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var (
	testUUID = layout.UUID{0x0e, 0x9f, 0x3c, 0x52, 0x1d, 0x84, 0x4b, 0x6a, 0x9c, 0x37, 0x5a, 0x2f, 0x81, 0xd6, 0xe4, 0xb0}
	testTime = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

	testSuperblock = layout.Superblock{
		UUID:      testUUID,
		Name:      "backup-pool",
		Geometry:  layout.Geometry{Stride: 4096, Hosts: 20, Locks: 1000},
		Lease:     30 * time.Second,
		Policy:    layout.PolicyFence,
		Formatted: testTime,
	}
	testSpace = testSuperblock.Space()
)

func fencedAfter(after time.Duration) layout.Superblock {
	sb := testSuperblock
	sb.FenceAfter = after
	return sb
}

func testHost() layout.HostRecord {
	return layout.HostRecord{
		ID: 3, Incarnation: 0x1122334455667788, State: layout.StateLive, Sequence: 41, Name: "node-3.example",
		MachineID:   [16]byte{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		BootID:      [16]byte{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		ReadHorizon: 17, WatchdogArmed: true, WatchdogSeconds: 60, PRKey: 0xfeedc0de00000003,
		Verdicts: []layout.Verdict{{Host: 5, Incarnation: 0x99}, {Host: 20, Incarnation: 1<<64 - 1}},
	}
}

func verdictsOfEachKind() layout.HostRecord {
	return layout.HostRecord{
		ID: 7, Incarnation: 2, State: layout.StateLive, Sequence: 9, ReadHorizon: 20,
		Verdicts: []layout.Verdict{
			{Host: 1, Incarnation: 0x11, Kind: layout.VerdictDead},
			{Host: 2, Incarnation: 0x22, Kind: layout.VerdictWish},
			{Host: 20, Incarnation: 0x33, Kind: layout.VerdictForgotten},
		},
	}
}

func complainingHost() layout.HostRecord {
	return layout.HostRecord{
		ID: 2, Incarnation: 3, State: layout.StateLive, Sequence: 8, ReadHorizon: 20, Name: "db2",
		Complaints: []layout.Complaint{{Host: 20, Lock: 0}, {Host: 0, Lock: 1000}, {Host: 5, Lock: 7}},
	}
}

func testEntry() layout.Entry {
	return layout.Entry{Lock: 7, Name: "vm/été-01", Permits: 2, Creation: 9}
}

func testSlot() layout.Slot {
	return layout.Slot{
		Lock: 7, Host: 3, Incarnation: 0x1122334455667788, Creation: 9, Sequence: 12,
		Phase: layout.Held, Mode: layout.Shared, Ticket: layout.MakeTicket(6903605647183, 3),
		Holder:     layout.Holder{PID: 4711, Since: testTime, Command: "/usr/bin/rsync -a /srv/ /mnt/"},
		Value:      []byte("generation=18\x00\xff"),
		ValueToken: layout.MakeTicket(6903605644531, 9).Grant(5),
	}
}

func requestingSlot() layout.Slot {
	return layout.Slot{
		Lock: 7, Host: 4, Incarnation: 5, Creation: 9, Sequence: 3, Ticket: layout.MakeTicket(6903605644000, 4),
		Request: layout.Request{Ticket: layout.MakeTicket(6903605647183, 3), At: testTime, Message: "rolling reboot, für 10 Minuten"},
	}
}

// sector is one record of the test lockspace, with its decoder and encoder.
type sector struct {
	name   string
	record any
	decode func(buf []byte) (any, error)
	encode func(buf []byte, record any) error
}

func hostSector(name string, r layout.HostRecord) sector {
	return sector{name, r,
		func(buf []byte) (any, error) { return testSpace.DecodeHost(buf, r.ID) },
		func(buf []byte, r any) error { return testSpace.EncodeHost(buf, r.(layout.HostRecord)) }}
}

func entrySector(name string, e layout.Entry) sector {
	return sector{name, e,
		func(buf []byte) (any, error) { return testSpace.DecodeEntry(buf, e.Lock) },
		func(buf []byte, e any) error { return testSpace.EncodeEntry(buf, e.(layout.Entry)) }}
}

func slotSector(name string, r layout.Slot) sector {
	return sector{name, r,
		func(buf []byte) (any, error) { return testSpace.DecodeSlot(buf, r.Lock, r.Host) },
		func(buf []byte, r any) error { return testSpace.EncodeSlot(buf, r.(layout.Slot)) }}
}

func superblockSector(name string, sb layout.Superblock, which int) sector {
	return sector{name, sb,
		func(buf []byte) (any, error) { return layout.DecodeSuperblock(buf, which) },
		func(buf []byte, sb any) error { return sb.(layout.Superblock).Encode(buf, which) }}
}

// sectors returns the golden sectors: one of each type and state that looks different on disk.
func sectors() []sector {
	idle := layout.Slot{Lock: 0, Host: 20, Incarnation: 1, Ticket: layout.MakeTicket(1, 20)}
	return []sector{
		superblockSector("superblock", testSuperblock, 0),
		superblockSector("superblock-copy", testSuperblock, 1),
		superblockSector("superblock-fence-after", fencedAfter(6*time.Second), 0),
		hostSector("host-live", testHost()),
		hostSector("host-verdicts", verdictsOfEachKind()),
		hostSector("host-complaints", complainingHost()),
		hostSector("host-left", layout.HostRecord{ID: 20, Incarnation: 1, State: layout.StateLeft}),
		entrySector("entry", testEntry()),
		entrySector("entry-free", layout.Entry{Lock: 1000, Creation: 10}),
		slotSector("slot-held", testSlot()),
		slotSector("slot-idle", idle),
		slotSector("slot-request", requestingSlot()),
	}
}

func encoded(t require.TestingT, s sector) []byte {
	buf := make([]byte, layout.RecordSize)
	require.NoError(t, s.encode(buf, s.record))
	return buf
}

// reseal makes the checksum of a modified sector valid again.
func reseal(buf []byte) []byte {
	binary.LittleEndian.PutUint32(buf[8:], 0)
	binary.LittleEndian.PutUint32(buf[8:], crc32.Checksum(buf[:512], crc32.MakeTable(crc32.Castagnoli)))
	return buf
}

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
			for name, c := range map[string]struct {
				buf  []byte
				want error
			}{
				"other magic":             {reseal(patch(0, 'X')), layout.ErrMagic},
				"magic before all":        {bytes.Repeat([]byte{0xff}, 512), layout.ErrMagic},
				"later version":           {reseal(patch(4, 2)), layout.ErrVersion},
				"version before checksum": {patch(4, 0, 1), layout.ErrVersion},
				"checksum":                {patch(8, ^buf[8]), layout.ErrChecksum},
				"body":                    {patch(511, 1), layout.ErrChecksum},
				"checksum before address": {patch(16, ^buf[16]), layout.ErrChecksum},
				"other address":           {reseal(patch(16, ^buf[16])), layout.ErrIdentity},
				"address beyond 63 bits":  {reseal(patch(23, 0x80)), layout.ErrIdentity},
				"reserved 6-7":            {reseal(patch(7, 1)), layout.ErrField},
				"reserved 12-15":          {reseal(patch(12, 1)), layout.ErrField},
				"reserved tail":           {reseal(patch(511, 1)), layout.ErrField},
			} {
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
	place := func(s sector) string { return strings.TrimSuffix(s.name, "-fence-after") }
	for _, s := range all {
		buf := encoded(t, s)
		for _, other := range all {
			if place(s) == place(other) {
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
	host, err := testSpace.DecodeHost(zero, 3)
	require.NoError(t, err)
	require.True(t, host.Blank())
	require.Equal(t, layout.HostRecord{ID: 3}, host)
	entry, err := testSpace.DecodeEntry(zero, 7)
	require.NoError(t, err)
	require.True(t, entry.Blank() && entry.Free())
	require.Equal(t, layout.Entry{Lock: 7}, entry)
	slot, err := testSpace.DecodeSlot(zero, 0, 3)
	require.NoError(t, err)
	require.True(t, slot.Blank())
	require.Equal(t, layout.Slot{Host: 3}, slot)
	_, err = layout.DecodeSuperblock(zero, 0)
	require.ErrorIs(t, err, layout.ErrBlank)

	require.False(t, testHost().Blank())
	require.False(t, testSlot().Blank())
	require.False(t, testEntry().Free() || testEntry().Blank())
	removed := layout.Entry{Lock: 7, Creation: 10}
	require.True(t, removed.Free())
	require.False(t, removed.Blank())

	// No host writes a blank record: it would erase the ticket that tokens continue from.
	buf := bytes.Repeat([]byte{0xa5}, layout.RecordSize)
	require.ErrorIs(t, testSpace.EncodeHost(buf, host), layout.ErrField)
	require.ErrorIs(t, testSpace.EncodeEntry(buf, entry), layout.ErrField)
	require.ErrorIs(t, testSpace.EncodeSlot(buf, slot), layout.ErrField)
	require.Equal(t, bytes.Repeat([]byte{0xa5}, layout.RecordSize), buf, "unchanged on an error")
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
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = testSpace.EncodeHost(buf, r) }), s.name)
		case layout.Entry:
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = testSpace.EncodeEntry(buf, r) }), s.name)
		case layout.Slot:
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = testSpace.EncodeSlot(buf, r) }), s.name)
		}
	}
	slot := testSlot()
	slot.Value, slot.Holder.Command = nil, ""
	require.NoError(t, testSpace.EncodeSlot(buf, slot))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = testSpace.DecodeSlot(buf, 7, 3) }))
	clear(buf)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = testSpace.DecodeSlot(buf, 7, 3) }))
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
