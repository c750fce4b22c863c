package layout_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// fuzzSector feeds the decoders of both versions with arbitrary bytes, and again under a valid
// header and checksum, which a fuzzer would not find. An accepted record must be complete, at its
// place, and encode to the same bytes. Without an address the sector is a superblock, which lies at
// byte 0 and has its own uuid.
func fuzzSector(f *testing.F, magic string, address func() uint64, one, several sector) {
	for _, golden := range sectors() {
		f.Add(encoded(f, golden))
	}
	f.Add(make([]byte, 512))
	f.Add([]byte{})
	check := func(t *testing.T, s sector, buf []byte, blank bool) {
		found, err := s.decode(buf)
		if err != nil {
			require.Zero(t, found)
			return
		}
		require.GreaterOrEqual(t, len(buf), 512)
		record := buf[:512]
		if blank && bytes.Equal(record, make([]byte, 512)) {
			return
		}
		require.Equal(t, magic, string(record[:4]))
		require.Equal(t, binary.LittleEndian.Uint32(record[8:]),
			binary.LittleEndian.Uint32(reseal(bytes.Clone(record))[8:]), "checksum")
		if address != nil {
			require.Equal(t, address(), binary.LittleEndian.Uint64(record[16:]), "address")
			require.Equal(t, testUUID[:], record[24:40], "uuid")
			require.Equal(t, s.space.Several, record[4] == layout.VersionSeveral, "version")
		} else {
			require.Zero(t, binary.LittleEndian.Uint64(record[16:]), "address")
		}
		requireSound(t, found, record[4] == layout.VersionSeveral)
		again := make([]byte, 512)
		require.NoError(t, s.encode(again, found))
		if record[4] == layout.VersionSeveral {
			layout.PlaceCopy(again, int(record[6]))
		}
		require.Equal(t, record, again, "decode then encode is the identity")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		check(t, one, data, true)
		check(t, several, data, true)
		require.True(t, bytes.Equal(before, data), "decoding changes nothing")

		for version, s := range map[uint16]sector{layout.Version: one, layout.VersionSeveral: several} {
			buf := make([]byte, 512)
			copy(buf, data)
			copy(buf, magic)
			copy(buf[4:], u16(version))
			if version == layout.VersionSeveral {
				buf[6] = 1 + buf[6]%layout.MaxPositions
			} else {
				buf[6] = 0
			}
			if address != nil {
				copy(buf[16:], u64(address()))
				copy(buf[24:], testUUID[:])
			}
			check(t, s, reseal(buf), false)
		}
	})
}

// requireSound checks the properties of an accepted record that other packages rely on.
func requireSound(t *testing.T, found any, several bool) {
	t.Helper()
	g := testSpace.Geometry
	switch r := found.(type) {
	case layout.Superblock:
		require.False(t, r.UUID.IsZero())
		require.GreaterOrEqual(t, r.Lease, layout.MinLease)
		require.LessOrEqual(t, r.Lease, layout.MaxLease)
		if r.FenceAfter != 0 {
			require.GreaterOrEqual(t, r.FenceAfter, layout.MinFenceAfter(r.Lease))
			require.LessOrEqual(t, r.FenceAfter, r.Lease)
		}
		require.LessOrEqual(t, r.Geometry.Size(), int64(layout.MaxStride)*(2+layout.MaxHosts+layout.MaxLocks+(layout.MaxLocks+1)*layout.MaxHosts))
		require.Positive(t, r.Geometry.Size())
		requireText(t, r.Name, layout.MaxName)
		requireTime(t, r.Formatted)
		require.Equal(t, several, r.Space().Several)
		requireMembers(t, r)
	case layout.HostRecord:
		require.Equal(t, 3, r.ID)
		require.NotZero(t, r.Incarnation)
		require.LessOrEqual(t, r.ReadHorizon, g.Hosts)
		requireText(t, r.Name, layout.MaxName)
		require.True(t, several || r.Generation == 0 && r.Epoch == 0)
		require.LessOrEqual(t, len(r.Verdicts), layout.MaxVerdicts)
		for _, v := range r.Verdicts {
			require.NotPanics(t, func() { g.Host(v.Host) })
			require.NotZero(t, v.Incarnation)
		}
		require.LessOrEqual(t, len(r.Complaints), layout.MaxComplaints)
		for _, c := range r.Complaints {
			require.NotPanics(t, func() {
				if c.Host == 0 {
					g.Entry(c.Lock)
				} else {
					g.Slot(c.Lock, c.Host)
				}
			})
		}
	case layout.Entry:
		require.Equal(t, 7, r.Lock)
		require.NotZero(t, r.Creation)
		require.LessOrEqual(t, r.Creation, uint64(layout.MaxCreation))
		require.Equal(t, r.Free(), r.Permits == 0)
		require.LessOrEqual(t, r.Permits, layout.MaxHosts)
		requireText(t, r.Name, layout.MaxLockName)
		requireTicket(t, r.Token)
		require.Equal(t, several, r.Token != 0)
		require.True(t, several || r.Sequence == 0)
	case layout.Slot:
		require.Equal(t, [2]int{7, 3}, [2]int{r.Lock, r.Host})
		require.NotZero(t, r.Incarnation)
		require.LessOrEqual(t, r.Creation, uint64(layout.MaxCreation))
		require.True(t, several || r.Generation == 0)
		requireTicket(t, r.Ticket)
		if r.Phase != layout.Idle {
			require.NotZero(t, r.Ticket, "nobody is in line without a ticket")
		}
		if r.Ticket != 0 { // no two hosts have the same
			require.Equal(t, layout.MakeTicket(r.Ticket.Number(), 3), r.Ticket)
		}
		requireTicket(t, r.ValueToken)
		requireTicket(t, r.Request.Ticket)
		require.LessOrEqual(t, len(r.Value), layout.MaxValue)
		require.GreaterOrEqual(t, r.Holder.PID, 0)
		requireText(t, r.Holder.Command, layout.MaxCommand)
		requireText(t, r.Request.Message, layout.MaxRequest)
		requireTime(t, r.Holder.Since)
		requireTime(t, r.Request.At)
	}
}

// requireMembers checks that there are majorities, and that no disk counts twice in them.
func requireMembers(t *testing.T, sb layout.Superblock) {
	t.Helper()
	m := sb.Members
	if !m.Several() {
		require.Zero(t, sb.Position)
		return
	}
	require.NotZero(t, m.Epoch)
	require.Contains(t, []int{3, 5}, m.Positions)
	disks := map[layout.UUID]int{}
	for i, id := range m.Disks {
		if !id.IsZero() {
			disks[id] = i + 1
			require.Equal(t, i+1, m.PositionOf(id))
		}
	}
	require.Contains(t, []int{m.Positions - 1, m.Positions}, len(disks))
	require.Equal(t, len(disks) < m.Positions, m.Vacant() != 0)
	require.Equal(t, sb.Position, disks[m.Disks[sb.Position-1]])
}

// requireTicket checks that a decoded ticket can be made by MakeTicket and Grant.
func requireTicket(t *testing.T, ticket layout.Ticket) {
	t.Helper()
	if ticket != 0 {
		made := layout.MakeTicket(ticket.Number(), ticket.Host())
		require.Equal(t, made.Grant(int(ticket-made)), ticket)
	}
}

// requireText checks that a text from a disk can be shown on a terminal.
func requireText(t *testing.T, text string, most int) {
	t.Helper()
	require.LessOrEqual(t, len(text), most)
	require.True(t, utf8.ValidString(text))
	require.False(t, strings.ContainsFunc(text, unicode.IsControl), "%q", text)
}

// requireTime checks that the time has a text form.
func requireTime(t *testing.T, at time.Time) {
	t.Helper()
	_, err := at.MarshalJSON()
	require.NoError(t, err)
}

func FuzzSuperblock(f *testing.F) {
	f.Add(encoded(f, superblockSector("", testSuperblock, 0)))
	f.Add(encoded(f, superblockSector("", fencedAfter(testSuperblock.Lease/5), 0)))
	fuzzSector(f, "BKSB", nil, superblockSector("", testSuperblock, 0), superblockSector("", severalSuperblock, 0))
}

// FuzzMark decodes the mark that formatting keeps at byte 0 until it is done: the earlier
// superblock, encoded as the copy.
func FuzzMark(f *testing.F) {
	f.Add(encoded(f, superblockSector("", testSuperblock, 1)))
	f.Add(encoded(f, superblockSector("", severalSuperblock, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, several := make([]byte, 512), make([]byte, 512)
		copy(one, data)
		copy(one, "BKSB\x01\x00\x00\x00")
		copy(several, data)
		copy(several, "BKSB\x02\x00")
		for _, buf := range [][]byte{data, reseal(one), reseal(several)} {
			sb, err := layout.DecodeSuperblock(buf, 1)
			if err != nil {
				require.Zero(t, sb)
				continue
			}
			requireSound(t, sb, buf[4] == layout.VersionSeveral)
			again := make([]byte, 512)
			require.NoError(t, sb.Encode(again, 1))
			require.Equal(t, buf[:512], again)
			_, err = layout.DecodeSuperblock(buf, 0)
			require.ErrorIs(t, err, layout.ErrIdentity, "nobody takes it for a superblock")
		}
	})
}

// FuzzIntent decodes the value of a slot of lock 0.
func FuzzIntent(f *testing.F) {
	f.Add(layout.Intent{Lock: 7, Name: "x", Permits: 1, Creation: 1}.Value())
	f.Add(layout.Intent{Lock: 1000, Creation: layout.MaxCreation}.Value())
	f.Add(layout.Intent(severalEntry()).Value())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, space := range []layout.Space{testSpace, severalSpace} {
			i, err := space.DecodeIntent(value)
			if err != nil {
				require.Zero(t, i)
				continue
			}
			require.Equal(t, value, i.Value(), "decode then encode is the identity")
			require.True(t, space.Several || i.Token == 0 && i.Sequence == 0)
			requireTicket(t, i.Token)
			if e := layout.Entry(i); e.Token != 0 || !space.Several {
				require.NoError(t, space.EncodeEntry(make([]byte, 512), e), "it can be written into the directory")
			}
		}
	})
}

// FuzzCopyVersion reads the version of a copy without decoding it, at the address in its header.
func FuzzCopyVersion(f *testing.F) {
	for _, golden := range sectors() {
		f.Add(encoded(f, golden))
	}
	f.Add(make([]byte, 512))
	f.Fuzz(func(t *testing.T, data []byte) {
		buf := make([]byte, 512)
		copy(buf, data)
		for range 2 {
			off, position := int64(binary.LittleEndian.Uint64(buf[16:])), int(buf[6])
			before := bytes.Clone(buf)
			version, err := severalSpace.CopyVersion(buf, off, position)
			require.Equal(t, before, buf)
			if err != nil {
				require.Zero(t, version)
			} else if blank := bytes.Equal(buf, make([]byte, 512)); blank {
				require.Zero(t, version)
			} else {
				require.NotZero(t, version, "a record outranks zeroes")
				layout.PlaceCopy(buf, 1+position%layout.MaxPositions)
				_, err = severalSpace.CopyVersion(buf, off, position)
				require.ErrorIs(t, err, layout.ErrIdentity)
				moved, err := severalSpace.CopyVersion(buf, off, 1+position%layout.MaxPositions)
				require.NoError(t, err)
				require.Equal(t, version, moved)
			}
			copy(buf[4:], u16(layout.VersionSeveral))
			copy(buf[24:], testUUID[:])
			reseal(buf)
		}
	})
}

// FuzzTexts decodes the text forms of the journal, the API and the command line.
func FuzzTexts(f *testing.F) {
	for _, seed := range []string{"3676650270761156864", "0", "-1", "+5", "09", "9223372036854775807", "fence", "held", "shared", "joining", testUUID.String(), "nightly\x1b[31m"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var ticket layout.Ticket
		if ticket.UnmarshalText([]byte(text)) == nil {
			requireTicket(t, ticket)
			var again layout.Ticket
			require.NoError(t, again.UnmarshalText([]byte(ticket.String())))
			require.Equal(t, ticket, again)
		} else {
			require.Zero(t, ticket)
		}
		var uuid layout.UUID
		if uuid.UnmarshalText([]byte(text)) == nil {
			require.True(t, strings.EqualFold(text, uuid.String()), "%q", text)
		}
		var policy layout.Policy
		var phase layout.Phase
		var mode layout.Mode
		for _, v := range []interface {
			UnmarshalText([]byte) error
			String() string
		}{&policy, &phase, &mode} {
			if v.UnmarshalText([]byte(text)) == nil {
				require.Equal(t, text, v.String())
			}
		}
		if layout.ValidateLockName(text) == nil {
			requireText(t, text, layout.MaxLockName)
			require.NotEmpty(t, text)
		}
		requireText(t, layout.TruncateCommand(text), layout.MaxCommand)
		require.Equal(t, layout.TruncateCommand(text), layout.TruncateCommand(layout.TruncateCommand(text)))
	})
}

func FuzzHost(f *testing.F) {
	address := func() uint64 { return uint64(testSpace.Geometry.Host(3)) }
	fuzzSector(f, "BKHR", address, hostSector("", testHost()), severalHostSector("", severalHost()))
}

func FuzzEntry(f *testing.F) {
	address := func() uint64 { return uint64(testSpace.Geometry.Entry(7)) }
	fuzzSector(f, "BKDE", address, entrySector("", testEntry()), severalEntrySector("", severalEntry()))
}

func FuzzSlot(f *testing.F) {
	address := func() uint64 { return uint64(testSpace.Geometry.Slot(7, 3)) }
	fuzzSector(f, "BKSL", address, slotSector("", testSlot()), severalSlotSector("", severalSlot()))
}

func FuzzFindSuperblock(f *testing.F) {
	good, other := make([]byte, 512), make([]byte, 512)
	require.NoError(f, testSuperblock.Encode(good, 0))
	require.NoError(f, testSuperblock.Encode(other, 1))
	f.Add(good, other, uint8(3), 4608, uint8(0))
	f.Add(make([]byte, 512), other, uint8(3), layout.HeadSize, uint8(0))
	f.Add(make([]byte, 512), other, uint8(2), layout.HeadSize, uint8(1))
	f.Add([]byte("not one"), make([]byte, 512), uint8(0), 1024, uint8(0))
	several := encoded(f, superblockSector("", severalSuperblock, 1))
	f.Add(encoded(f, superblockSector("", severalSuperblock, 0)), several, uint8(3), layout.HeadSize, uint8(0))
	f.Add(make([]byte, 512), several, uint8(2), layout.HeadSize, uint8(2))
	f.Fuzz(func(t *testing.T, first, second []byte, shift uint8, size int, sealed uint8) {
		if size < 0 || size > layout.HeadSize {
			size = layout.HeadSize
		}
		head := make([]byte, layout.HeadSize)
		copy(head[:512], first)
		stride := 512 << (shift % 8)
		at := head[stride : stride+512]
		copy(at, second)
		switch sealed % 3 {
		case layout.Version:
			copy(at, "BKSB\x01\x00\x00\x00")
		case layout.VersionSeveral:
			copy(at, "BKSB\x02\x00")
		}
		if sealed%3 != 0 {
			copy(at[16:], u64(uint64(stride)))
			copy(at[40:], u32(uint32(stride)))
			reseal(at)
		}
		head = head[:size]
		sb, used, err := layout.FindSuperblock(head)
		if err != nil {
			require.Zero(t, sb)
			return
		}
		record := head[sb.Geometry.Superblock(used):][:512]
		again := make([]byte, 512)
		require.NoError(t, sb.Encode(again, used))
		require.Equal(t, record, again)
		require.Equal(t, crc32.Checksum(append(append(bytes.Clone(record[:8]), 0, 0, 0, 0), record[12:]...),
			crc32.MakeTable(crc32.Castagnoli)), binary.LittleEndian.Uint32(record[8:]))
	})
}
