package layout_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// fuzzSector feeds a decoder with bytes as they come, and again under a good header and checksum, which a
// fuzzer would never find by itself. What is accepted must be whole, at its place, and encode to the same.
// Without an address the sector is a superblock, which lies at byte 0 and brings its own uuid.
func fuzzSector(f *testing.F, magic string, address func() uint64, s sector) {
	for _, golden := range sectors() {
		f.Add(encoded(f, golden))
	}
	f.Add(make([]byte, 512))
	f.Add([]byte{})
	check := func(t *testing.T, buf []byte, virgin bool) {
		found, err := s.decode(buf)
		if err != nil {
			require.Zero(t, found)
			return
		}
		require.GreaterOrEqual(t, len(buf), 512)
		record := buf[:512]
		if virgin && bytes.Equal(record, make([]byte, 512)) {
			return
		}
		require.Equal(t, magic, string(record[:4]))
		require.Equal(t, binary.LittleEndian.Uint32(record[8:]),
			binary.LittleEndian.Uint32(reseal(bytes.Clone(record))[8:]), "checksum")
		if address != nil {
			require.Equal(t, address(), binary.LittleEndian.Uint64(record[16:]), "address")
			require.Equal(t, testUUID[:], record[24:40], "uuid")
		} else {
			require.Zero(t, binary.LittleEndian.Uint64(record[16:]), "address")
		}
		again := make([]byte, 512)
		require.NoError(t, s.encode(again, found))
		require.Equal(t, record, again, "decode then encode is the identity")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		check(t, data, true)
		require.True(t, bytes.Equal(before, data), "decoding changes nothing")

		buf := make([]byte, 512)
		copy(buf, data)
		copy(buf, magic)
		copy(buf[4:], u16(layout.Version))
		if address != nil {
			copy(buf[16:], u64(address()))
			copy(buf[24:], testUUID[:])
		}
		check(t, reseal(buf), false)
	})
}

func FuzzSuperblock(f *testing.F) {
	f.Add(encoded(f, superblockSector("", testSuperblock, 0)))
	fuzzSector(f, "BKSB", nil, superblockSector("", testSuperblock, 0))
}

func FuzzHost(f *testing.F) {
	address := func() uint64 { return uint64(testSpace.Geometry.Host(3)) }
	fuzzSector(f, "BKHR", address, hostSector("", testHost()))
}

func FuzzEntry(f *testing.F) {
	address := func() uint64 { return uint64(testSpace.Geometry.Entry(7)) }
	fuzzSector(f, "BKDE", address, entrySector("", testEntry()))
}

func FuzzSlot(f *testing.F) {
	address := func() uint64 { return uint64(testSpace.Geometry.Slot(7, 3)) }
	fuzzSector(f, "BKSL", address, slotSector("", testSlot()))
}

func FuzzFindSuperblock(f *testing.F) {
	good, other := make([]byte, 512), make([]byte, 512)
	require.NoError(f, testSuperblock.Encode(good, 0))
	require.NoError(f, testSuperblock.Encode(other, 1))
	f.Add(good, other, uint8(3), 4608, false)
	f.Add(make([]byte, 512), other, uint8(3), layout.HeadSize, false)
	f.Add(make([]byte, 512), other, uint8(2), layout.HeadSize, true)
	f.Add([]byte("not one"), make([]byte, 512), uint8(0), 1024, false)
	f.Fuzz(func(t *testing.T, first, second []byte, shift uint8, size int, sealed bool) {
		if size < 0 || size > layout.HeadSize {
			size = layout.HeadSize
		}
		head := make([]byte, layout.HeadSize)
		copy(head[:512], first)
		stride := 512 << (shift % 8)
		at := head[stride : stride+512]
		copy(at, second)
		if sealed {
			copy(at, "BKSB\x01\x00\x00\x00")
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
