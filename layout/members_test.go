package layout_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestMembers(t *testing.T) {
	require.False(t, layout.Members{}.Several())
	require.False(t, testSpace.Several)

	for _, c := range []struct {
		at                       []byte
		positions, vacant, first int
	}{
		{[]byte{1, 2, 3}, 3, 0, 1}, {[]byte{2, 3}, 3, 1, 2}, {[]byte{1, 2}, 3, 3, 1},
		{[]byte{1, 2, 3, 4, 5}, 5, 0, 1}, {[]byte{1, 3, 4, 5}, 5, 2, 1},
	} {
		m := onDisks(1, int(c.at[0]), c.at...).Members
		require.True(t, m.Several())
		require.Equal(t, []int{c.positions, c.positions/2 + 1, c.vacant, c.first}, []int{m.Positions, m.Majority(), m.Vacant(), m.First()})
		for _, at := range c.at {
			require.EqualValues(t, at, m.PositionOf(diskUUID(at)))
		}
		require.Zero(t, m.PositionOf(diskUUID(9)))
	}
	require.Equal(t, layout.Space{UUID: testUUID, Geometry: testSpace.Geometry, Several: true}, severalSuperblock.Space())
	for _, m := range []layout.Members{{Epoch: 1}, {Positions: 1}, {Disks: [layout.MaxPositions]layout.UUID{4: {1}}}} {
		require.True(t, m.Several(), "invalid, but not of one disk: %+v", m)
	}
}

func TestSeveralSuperblockLimits(t *testing.T) {
	type sb = layout.Superblock
	for which := range 2 {
		of := func(name string, r sb) sector { return superblockSector(name, r, which) }
		checkLimits(t, func() sb { return severalSuperblock }, of, []limit[sb]{
			{"position below", func(r *sb) { r.Position = 0 }, "position 0, want 1 to 5"},
			{"position negative", func(r *sb) { r.Position = -1 }, "position -1, want 1 to 5"},
			{"position at", func(r *sb) { r.Position = 1 }, ""},
			{"position at high", func(r *sb) { *r = onDisks(1, 5, 1, 2, 3, 4, 5) }, ""},
			{"position above", func(r *sb) { r.Position = 6 }, "position 6, want 1 to 5"},
			{"position above those that it has", func(r *sb) { r.Position = 4 }, "position 4 has no member disk"},
			{"position that is vacant", func(r *sb) { *r = onDisks(1, 3, 1, 2) }, "position 3 has no member disk"},
			{"epoch below", func(r *sb) { r.Members.Epoch = 0 }, "epoch 0"},
			{"epoch at", func(r *sb) { r.Members.Epoch = 1 }, ""},
			{"epoch max", func(r *sb) { r.Members.Epoch = math.MaxUint64 }, ""},
			{"no positions", func(r *sb) { r.Members.Positions = 0 }, "0 positions of member disks, want 3 or 5"},
			{"2 positions", func(r *sb) { r.Members.Positions = 2 }, "2 positions of member disks, want 3 or 5"},
			{"4 positions", func(r *sb) { r.Members.Positions = 4 }, "4 positions of member disks, want 3 or 5"},
			{"positions negative", func(r *sb) { r.Members.Positions = -1 }, "number of positions -1, want 0 to 5"},
			{"positions above", func(r *sb) { r.Members.Positions = 6 }, "number of positions 6, want 0 to 5"},
			{"1 disk of 3", func(r *sb) { *r = onDisks(1, 1, 1) }, "2 positions without a member disk, want at most 1"},
			{"2 disks of 3", func(r *sb) { *r = onDisks(1, 1, 1, 2) }, ""},
			{"3 disks of 5", func(r *sb) { *r = onDisks(1, 1, 1, 2, 4) }, "2 positions without a member disk, want at most 1"},
			{"4 disks of 5", func(r *sb) { *r = onDisks(1, 1, 1, 2, 3, 4) }, ""},
			{"a disk after 3", func(r *sb) { r.Members.Disks[3] = diskUUID(4) }, "member disk at position 4 of 3"},
			{"one uuid twice", func(r *sb) { r.Members.Disks[2] = r.Members.Disks[0] }, "two member disks with uuid " + diskUUID(1).String()},
			{"one disk", func(r *sb) { r.Members = layout.Members{} }, "position on one disk, want none"},
		})
		first, third := diskUUID(1), diskUUID(3)
		checkRaw(t, superblockSector("", severalSuperblock, which), []raw{
			{"one disk", 4, []byte{1}, "reserved bytes 6 to 7"},
			{"one disk, no position", 4, []byte{1, 0, 0}, "reserved bytes 144 to 255"},
			{"position below", 6, []byte{0}, "position 0, want 1 to 5"},
			{"position above", 6, []byte{6}, "position 6, want 1 to 5"},
			{"position without a disk", 6, []byte{4}, "position 4 has no member disk"},
			{"reserved after the position", 7, []byte{1}, "reserved bytes 7 to 7"},
			{"generation", 12, []byte{1}, "reserved bytes 12 to 15"},
			{"generation last", 15, []byte{1}, "reserved bytes 12 to 15"},
			{"epoch", 144, u64(0), "epoch 0"},
			{"positions below", 152, []byte{2}, "2 positions of member disks, want 3 or 5"},
			{"positions above", 152, []byte{255}, "number of positions 255, want 0 to 5"},
			{"positions of which two have no disk", 152, []byte{5}, "2 positions without a member disk"},
			{"reserved", 153, []byte{1}, "reserved bytes 153 to 159"},
			{"reserved last", 159, []byte{1}, "reserved bytes 153 to 159"},
			{"the own position vacant", 176, make([]byte, 16), "position 2 has no member disk"},
			{"two vacant", 160, make([]byte, 32), "2 positions without a member disk, want at most 1"},
			{"a disk after 3", 208, []byte{1}, "member disk at position 4 of 3"},
			{"one uuid twice", 160, third[:], "two member disks with uuid " + third.String()},
			{"one uuid twice, another", 192, first[:], "two member disks with uuid " + first.String()},
			{"reserved after them", 240, []byte{1}, "reserved bytes 240 to 255"},
			{"reserved up to the end", 256, []byte{1}, "reserved bytes 256 to 511"},
		})
	}
	r := testSuperblock
	r.Position = 1
	require.ErrorIs(t, r.Encode(make([]byte, 512), 0), layout.ErrField, "one disk has no position")
}

func TestSeveralHostLimits(t *testing.T) {
	type host = layout.HostRecord
	checkLimits(t, severalHost, severalHostSector, []limit[host]{
		{"generation none", func(r *host) { r.Generation = 0 }, ""},
		{"generation max", func(r *host) { r.Generation = math.MaxUint32 }, ""},
		{"epoch none", func(r *host) { r.Epoch = 0 }, ""},
		{"epoch max", func(r *host) { r.Epoch = math.MaxUint64 }, ""},
	})
	checkRaw(t, severalHostSector("", severalHost()), headerRaw(
		raw{"reserved last", 504, []byte{1}, "reserved bytes 504 to 511"},
	))
}

func TestSeveralEntryLimits(t *testing.T) {
	type entry = layout.Entry
	checkLimits(t, severalEntry, severalEntrySector, []limit[entry]{
		{"free", func(r *entry) { r.Name, r.Permits = "", 0 }, ""},
		{"token below", func(r *entry) { r.Token = 0 }, "token 0, want another"},
		{"token at", func(r *entry) { r.Token = layout.MakeTicket(0, 1) }, ""},
		{"token at high", func(r *entry) { r.Token = layout.MakeTicket(layout.MaxNumber, 20).Grant(255) }, ""},
		{"token of none", func(r *entry) { r.Token = 255 }, "token 255 is of host 0, want 1 to 20"},
		{"token host", func(r *entry) { r.Token = layout.MakeTicket(1, 21) }, "token 529664 is of host 21, want 1 to 20"},
		{"token above", func(r *entry) { r.Token = 1<<63 + 3<<8 }, "token 9223372036854776576, want a number below 2^63"},
		{"number none", func(r *entry) { r.Sequence = 0 }, ""},
		{"number max", func(r *entry) { r.Sequence = math.MaxUint64 }, ""},
	})
	checkRaw(t, severalEntrySector("", severalEntry()), headerRaw(
		raw{"generation", 12, []byte{1}, "reserved bytes 12 to 15"},
		raw{"token", 184, u64(0), "token 0, want another"},
		raw{"token host", 184, u64(21 << 8), "token 5376 is of host 21"},
		raw{"token sign", 191, []byte{0x80}, "below 2^63"},
		raw{"reserved", 200, []byte{1}, "reserved bytes 200 to 511"},
	))
}

func TestSeveralSlotLimits(t *testing.T) {
	type slot = layout.Slot
	checkLimits(t, severalSlot, severalSlotSector, []limit[slot]{
		{"generation none", func(r *slot) { r.Generation = 0 }, ""},
		{"generation max", func(r *slot) { r.Generation = math.MaxUint32 }, ""},
	})
	checkRaw(t, severalSlotSector("", severalSlot()), headerRaw())
}

// headerRaw adds those of the header of a record on several disks.
func headerRaw(more ...raw) []raw {
	return append(more,
		raw{"position below", 6, []byte{0}, "position 0, want 1 to 5"},
		raw{"position above", 6, []byte{6}, "position 6, want 1 to 5"},
		raw{"reserved after the position", 7, []byte{1}, "reserved bytes 7 to 7"},
	)
}

// copies are records on several disks, with their places and versions.
func copies() []copyOf {
	g := severalSpace.Geometry
	unused, first := severalHost(), severalSlot()
	unused.Generation, first.Sequence = 0, 0
	return []copyOf{
		{superblockSector("superblock", severalSuperblock, 0), 0, layout.CopyVersion{Epoch: 3}},
		{superblockSector("superblock copy", severalSuperblock, 1), 4096, layout.CopyVersion{Epoch: 3}},
		{severalHostSector("host", severalHost()), g.Host(3), layout.CopyVersion{Epoch: 0x1a2b3c4d, Counter: 41}},
		{severalHostSector("host without generation", unused), g.Host(3), layout.CopyVersion{Counter: 41}},
		{severalEntrySector("entry", severalEntry()), g.Entry(7),
			layout.CopyVersion{Epoch: uint64(severalEntry().Token), Counter: 0x0102030405060708}},
		{severalSlotSector("slot", severalSlot()), g.Slot(7, 3), layout.CopyVersion{Epoch: 0x1a2b3c4d, Counter: 12}},
		{severalSlotSector("slot without sequence", first), g.Slot(7, 3), layout.CopyVersion{Epoch: 0x1a2b3c4d}},
	}
}

type copyOf struct {
	sector
	off     int64
	version layout.CopyVersion
}

func TestCopyVersion(t *testing.T) {
	for _, c := range copies() {
		t.Run(c.name, func(t *testing.T) {
			for position := 1; position <= layout.MaxPositions; position++ {
				buf := encoded(t, c.at(position))
				version, err := severalSpace.CopyVersion(buf, c.off, position)
				require.NoError(t, err)
				require.Equal(t, c.version, version)
				version, err = severalSpace.CopyVersion(append(buf, bytes.Repeat([]byte{0xa5}, 3584)...), c.off, position)
				require.NoError(t, err, "bytes after the record are ignored")
				require.Equal(t, c.version, version)
				require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = severalSpace.CopyVersion(buf, c.off, position) }))
			}
		})
	}
	version, err := severalSpace.CopyVersion(make([]byte, 4096), severalSpace.Geometry.Host(3), 1)
	require.NoError(t, err)
	require.Zero(t, version, "blank")
}

func TestCopyVersion_NoCopyOfThePlace_IsRefused(t *testing.T) {
	for _, c := range copies() {
		t.Run(c.name, func(t *testing.T) {
			good := encoded(t, c.at(2))
			patch := func(at int, b ...byte) []byte {
				buf := bytes.Clone(good)
				copy(buf[at:], b)
				return buf
			}
			refused := func(name string, buf []byte, off int64, position int, want error) {
				version, err := severalSpace.CopyVersion(buf, off, position)
				require.ErrorIs(t, err, want, name)
				require.Zero(t, version, name)
			}
			refused("no bytes", nil, c.off, 2, layout.ErrShort)
			refused("short", good[:511], c.off, 2, layout.ErrShort)
			refused("short and blank", make([]byte, 511), c.off, 2, layout.ErrShort)
			refused("other magic", reseal(patch(0, 'X')), c.off, 2, layout.ErrMagic)
			refused("later version", reseal(patch(4, 3)), c.off, 2, layout.ErrVersion)
			old, err := severalSpace.CopyVersion(reseal(patch(4, 1)), c.off, 2)
			require.Error(t, err, "version of one disk")
			require.Zero(t, old)
			refused("damaged", patch(300, ^good[300]), c.off, 2, layout.ErrChecksum)
			refused("damaged version", patch(64, ^good[64]), c.off, 2, layout.ErrChecksum)
			refused("nearly blank", append(make([]byte, 511), 1), c.off, 2, layout.ErrMagic)
			for _, position := range []int{0, 1, 3, 4, 5, 6, 7} {
				refused("other position", good, c.off, position, layout.ErrIdentity)
			}
			for _, off := range []int64{c.off + 4096, c.off - 4096, c.off + 512} {
				refused("other address", good, off, 2, layout.ErrIdentity)
			}
			refused("other uuid", reseal(patch(24, ^good[24])), c.off, 2, layout.ErrIdentity)
		})
	}

	// A record of a lockspace on one disk. A superblock of it has no position.
	g := testSpace.Geometry
	for _, c := range []copyOf{
		{hostSector("host", testHost()), g.Host(3), layout.CopyVersion{}},
		{entrySector("entry", testEntry()), g.Entry(7), layout.CopyVersion{}},
		{slotSector("slot", testSlot()), g.Slot(7, 3), layout.CopyVersion{}},
	} {
		for _, position := range []int{0, 1} {
			_, err := severalSpace.CopyVersion(encoded(t, c.sector), c.off, position)
			require.ErrorIs(t, err, layout.ErrVersion, c.name)
		}
	}
	for which := range 2 {
		_, err := severalSpace.CopyVersion(encoded(t, superblockSector("", testSuperblock, which)), g.Superblock(which), 1)
		require.ErrorIs(t, err, layout.ErrIdentity)
	}
	_, err := severalSpace.CopyVersion(encoded(t, severalHostSector("", severalHost())), g.Host(3), 2)
	require.EqualError(t, err, "copy of the record at byte 16384: position 1, want 2: record belongs elsewhere")
}

// Zeroes have version 0, so a record must be above it: otherwise a reader could take either.
func TestCopyVersion_VersionZero_IsRefused(t *testing.T) {
	host, slot := severalHost(), severalSlot()
	host.Generation, host.Sequence = 0, 0
	slot.Generation, slot.Sequence = 0, 0
	for _, c := range []struct {
		s    sector
		off  int64
		zero [2]int
	}{
		{superblockSector("superblock", severalSuperblock, 0).at(1), 0, [2]int{144, 152}},
		{severalHostSector("host", host), severalSpace.Geometry.Host(3), [2]int{}},
		{severalEntrySector("entry", severalEntry()), severalSpace.Geometry.Entry(7), [2]int{184, 200}},
		{severalSlotSector("slot", slot), severalSpace.Geometry.Slot(7, 3), [2]int{}},
	} {
		buf := encoded(t, c.s)
		clear(buf[c.zero[0]:c.zero[1]])
		version, err := severalSpace.CopyVersion(reseal(buf), c.off, 1)
		require.ErrorIs(t, err, layout.ErrField, c.s.name)
		require.ErrorContains(t, err, "version 0", c.s.name)
		require.Zero(t, version, c.s.name)
	}
}

func TestPlaceCopy(t *testing.T) {
	for _, c := range copies() {
		t.Run(c.name, func(t *testing.T) {
			first := encoded(t, c.at(1))
			for _, position := range []int{1, 2, 3} { // the superblock names these
				buf := append(bytes.Clone(first), bytes.Repeat([]byte{0xa5}, 3584)...)
				layout.PlaceCopy(buf, position)
				want := bytes.Clone(first)
				want[6] = byte(position)
				require.Equal(t, reseal(want), buf[:512], "only the position and the checksum change")
				require.Equal(t, bytes.Repeat([]byte{0xa5}, 3584), buf[512:])

				found, err := c.decode(buf)
				require.NoError(t, err)
				expected := c.record
				if sb, ok := expected.(layout.Superblock); ok {
					sb.Position = position
					expected = sb
				}
				require.Equal(t, expected, found)
			}
			for _, position := range []int{-1, 0, 6} {
				require.Panics(t, func() { layout.PlaceCopy(first, position) })
			}
		})
	}
	blank := append(make([]byte, 512), 0xa5)
	layout.PlaceCopy(blank, 3)
	require.Equal(t, append(make([]byte, 512), 0xa5), blank)
}

// An encoded record is the copy at position 1, unless it is a superblock, which has its own.
func TestEncodedPosition(t *testing.T) {
	for _, c := range copies() {
		want := 1
		if sb, ok := c.record.(layout.Superblock); ok {
			want = sb.Position
		}
		require.EqualValues(t, want, encoded(t, c.sector)[6], c.name)
	}
	for _, s := range sectors() {
		if !s.space.Several {
			require.Zero(t, encoded(t, s)[6], s.name)
		}
	}
}
