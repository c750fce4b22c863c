package area

import (
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// A golden sector that changes is a new format version.
var update = flag.Bool("update", false, "rewrite the golden sectors in testdata")

var (
	uuid      = layout.UUID{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0x4d, 0xef, 0x80, 1, 2, 3, 4, 5, 6, 7}
	lockspace = Record{Kind: Lockspace, Flags: align8M | sector4K, IOTimeout: 15, UUID: uuid, Lockspace: "lvm_vg0",
		Nonce: 0x0123456789abcdef}
	resource = Record{Kind: Resource, Flags: align1M | sector512, UUID: uuid, Lockspace: "lvm_vg0",
		Name: strings.Repeat("n", maxName), Nonce: 0xfedcba9876543210, Lver: 0x0102030405060708}
)

const place = 67 << 20

func encoded(t testing.TB, r Record) []byte {
	buf := make([]byte, sectorSize)
	require.NoError(t, encode(buf, r, place))
	return buf
}

func TestRecord_Golden_IsEncodedAndDecoded(t *testing.T) {
	for name, want := range map[string]Record{"lockspace": lockspace, "resource": resource} {
		var dump strings.Builder
		for at, buf := 0, encoded(t, want); at < len(buf); at += 16 {
			fmt.Fprintf(&dump, "%04x  % x\n", at, buf[at:at+16])
		}
		path := filepath.Join("testdata", name+".hex")
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(dump.String()), 0o644))
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(text), dump.String())
		var golden []byte
		for line := range strings.Lines(string(text)) {
			b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line[4:]), " ", ""))
			require.NoError(t, err)
			golden = append(golden, b...)
		}
		got, err := decode(golden, want.Kind, place)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestRecord_Size_IsASector(t *testing.T) {
	require.Equal(t, sectorSize, binary.Size(onDisk{}))
	buf := make([]byte, 4096)
	buf[600] = 1
	require.NoError(t, encode(buf, resource, place))
	require.Equal(t, make([]byte, 4096-sectorSize), buf[sectorSize:])
}

// TestRecord_OtherContents_AreRefused: the text says what to do.
func TestRecord_OtherContents_AreRefused(t *testing.T) {
	number := func(n uint32) []byte { return le.AppendUint32(nil, n) }
	change := func(at int, b ...byte) []byte {
		buf := encoded(t, resource)
		copy(buf[at:], b)
		le.PutUint32(buf[checksumAt:], checksum(buf))
		return buf
	}
	damaged := encoded(t, resource)
	damaged[511] = 1
	for name, c := range map[string]struct {
		contents []byte
		code     int32
		text     string
	}{
		"never written":        {nil, codeMagic, "initialize it first"},
		"sanlock's lockspace":  {number(0x12212010), codeMagic, "belongs to sanlock"},
		"sanlock's resource":   {number(0x06152010), codeMagic, "belongs to sanlock"},
		"sanlock's index":      {number(0x01042018), codeMagic, "belongs to sanlock"},
		"cleared by sanlock":   {number(0x11282016), codeMagic, "initialize it first"},
		"another program":      {[]byte("\x1b[2JLABELONE"), codeMagic, `begins with "\x1b[2JLABE"`},
		"zeroes, then bytes":   {append(make([]byte, 100), 1), codeMagic, "check the path"},
		"a bakery host record": {[]byte("BKHR"), codeMagic, "check the path"},
		"later version":        {change(4, 2), codeVersion, "version 2, want 1"},
		"damaged":              {damaged, codeChecksum, "damaged (checksum 0x"},
		"misplaced":            {change(19, 5), codeChecksum, "written for offset 87031808"},
		"kind 0":               {change(6, 0), codeChecksum, "invalid field"},
		"kind 3":               {change(6, 3), codeChecksum, "invalid field"},
		"lockspace with name":  {change(6, 1), codeChecksum, "invalid field"},
		"reserved byte":        {change(7, 1), codeChecksum, "invalid field"},
		"last byte":            {change(511, 1), codeChecksum, "invalid field"},
		"byte after the name":  {change(53, 0), codeChecksum, "invalid field"},
		"no flags":             {change(12, 0, 0), codeSectorSize, "flags 0x0"},
		"two sector flags":     {change(13, 3), codeSectorSize, "flags 0x310"},
		"unknown flag":         {change(12, 0x11), codeSectorSize, "flags 0x111"},
		"512 with 8M":          {change(12, 0x80), codeSectorSize, "flags 0x180"},
	} {
		buf := make([]byte, sectorSize)
		copy(buf, c.contents)
		_, err := decode(buf, Resource, place)
		require.Equal(t, c.code, codeIn(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.text, name)
	}
	_, err := decode(encoded(t, lockspace), Resource, place)
	require.Equal(t, int32(codeMagic), codeIn(err))
	require.ErrorContains(t, err, `kind 1 (lockspace "lvm_vg0"`)
}

// TestRecord_AnyBitFlips_IsRefused also where the bit belongs to the magic or the checksum.
func TestRecord_AnyBitFlips_IsRefused(t *testing.T) {
	buf := encoded(t, resource)
	for bit := range 8 * sectorSize {
		buf[bit/8] ^= 1 << (bit % 8)
		_, err := decode(buf, Resource, place)
		require.Error(t, err, "bit %d", bit)
		buf[bit/8] ^= 1 << (bit % 8)
	}
}

func TestRecord_Invalid_IsNotEncoded(t *testing.T) {
	for name, r := range map[string]Record{
		"kind 0":                {Lockspace: "ls"},
		"lockspace with a name": {Kind: Lockspace, Name: "r"},
		"49 bytes":              {Kind: Resource, Name: strings.Repeat("n", 49)},
		"lockspace of 49":       {Kind: Lockspace, Lockspace: strings.Repeat("n", 49)},
		"zero byte":             {Kind: Resource, Name: "a\x00b"},
	} {
		require.Error(t, encode(make([]byte, sectorSize), r, 0), name)
	}
}

// TestValid_Flags_AreSanlocks: the results are those of sanlock 3.8.5 for a file.
func TestValid_Flags_AreSanlocks(t *testing.T) {
	for flags, want := range map[uint32]uint32{
		0: 0, 0x110: 0x110, 0x310: 0x110, 0x190: 0x110, 0x210: 0x210, 0x220: 0x220, 0x240: 0x240, 0x280: 0x280,
		0x230: 0x210, 0x114: 0x110, 0x80000110: 0x110,
	} {
		got, err := valid(flags)
		require.NoError(t, err, "%#x", flags)
		require.Equal(t, want, got, "%#x", flags)
	}
	for _, flags := range []uint32{0x10, 0x100, 0x120, 0x140, 0x180, 0x300, 0xf0} {
		_, err := valid(flags)
		require.Equal(t, int32(-1), codeIn(err), "%#x", flags)
	}
	require.Equal(t, []int64{1 << 20, 2 << 20, 4 << 20, 8 << 20}, []int64{alignOf(0x210), alignOf(0x220), alignOf(0x240), alignOf(0x280)})
	_, err := defaultFlags(2048)
	require.ErrorContains(t, err, "sectors of 2048 bytes")
}

func FuzzRecord(f *testing.F) {
	f.Add(encoded(f, lockspace), byte(Lockspace), uint64(place))
	f.Add(encoded(f, resource), byte(Resource), uint64(place))
	f.Fuzz(func(t *testing.T, buf []byte, kind byte, address uint64) {
		buf = append(buf, make([]byte, sectorSize)...)[:sectorSize]
		copy(buf, magic[:])
		le.PutUint32(buf[checksumAt:], checksum(buf))
		r, err := decode(buf, Kind(kind), address)
		if err != nil {
			return
		}
		again := make([]byte, sectorSize)
		require.NoError(t, encode(again, r, address))
		require.Equal(t, buf, again)
	})
}
