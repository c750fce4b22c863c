package layout_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// A golden sector that changes is a new format version.
var update = flag.Bool("update", false, "rewrite the golden sectors in testdata")

// dump formats a sector in lines of 16 bytes, as testdata and FORMAT.md do.
func dump(buf []byte) string {
	var out strings.Builder
	for at := 0; at < len(buf); at += 16 {
		fmt.Fprintf(&out, "%04x  % x\n", at, buf[at:at+16])
	}
	return out.String()
}

func undump(t *testing.T, text string) (buf []byte) {
	for line := range strings.Lines(text) {
		at, digits, _ := strings.Cut(line, "  ")
		require.Equal(t, fmt.Sprintf("%04x", len(buf)), at)
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		require.NoError(t, err)
		buf = append(buf, b...)
	}
	return buf
}

func golden(t *testing.T, name string) []byte {
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	require.NoError(t, err)
	buf := undump(t, string(text))
	require.Len(t, buf, 512)
	return buf
}

func TestGolden(t *testing.T) {
	for _, s := range sectors() {
		t.Run(s.name, func(t *testing.T) {
			if *update {
				file := filepath.Join("testdata", s.name+".hex")
				require.NoError(t, os.WriteFile(file, []byte(dump(encoded(t, s))), 0o644))
			}
			buf := golden(t, s.name)
			require.Equal(t, dump(buf), dump(encoded(t, s)))
			found, err := s.decode(buf)
			require.NoError(t, err)
			require.Equal(t, s.record, found)
		})
	}
}

// The example in FORMAT.md is the golden slot without its lines of zeroes.
func TestFormatExample(t *testing.T) {
	text, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	var want []string
	for line := range strings.Lines(dump(golden(t, "slot-held"))) {
		if strings.Trim(line[4:], " 0\n") != "" {
			want = append(want, strings.TrimSpace(line))
		}
	}
	require.Equal(t, want, regexp.MustCompile(`(?m)^[0-9a-f]{4}  [0-9a-f].*$`).FindAllString(string(text), -1))
	require.Contains(t, string(text), fmt.Sprintf("`0x%08x`", foreignCRC(golden(t, "slot-held"))))
}

// The reader below is written from FORMAT.md alone. It uses nothing of the package, only the
// offsets that the document gives.

func foreignLE(b []byte) (v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func foreignCRC32C(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			low := crc & 1
			crc >>= 1
			if low == 1 {
				crc ^= 0x82f63b78
			}
		}
	}
	return ^crc
}

func foreignCRC(sector []byte) uint32 {
	zeroed := append([]byte{}, sector[:512]...)
	zeroed[8], zeroed[9], zeroed[10], zeroed[11] = 0, 0, 0, 0
	return foreignCRC32C(zeroed)
}

func foreignTime(b []byte) string {
	if foreignLE(b) == 0 {
		return "unknown"
	}
	return time.UnixMicro(int64(foreignLE(b))).UTC().Format("2006-01-02T15:04:05.000000Z")
}

type foreign map[string]any

func foreignRead(b []byte) foreign {
	n := func(from, to int) uint64 { return foreignLE(b[from : to+1]) } // inclusive, as in the tables
	text := func(from int, length uint64) string { return string(b[from : from+int(length)]) }
	ticket := func(w uint64) string { return fmt.Sprintf("%d of host %d, grant %d", w>>19, w>>8&2047, w&255) }
	u := hex.EncodeToString(b[24:40])
	r := foreign{
		"magic": string(b[0:4]), "version": n(4, 5), "address": n(16, 23),
		"uuid":     u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:],
		"checksum": n(8, 11) == uint64(foreignCRC(b)),
	}
	several := n(4, 5) == 2
	if several {
		r["position"] = n(6, 6)
	}
	switch r["magic"] {
	case "BKSB":
		r["stride"], r["hosts"], r["locks"], r["policy"] = n(40, 43), n(44, 47), n(48, 51), n(52, 52)
		r["name"] = text(72, n(54, 55))
		r["lease"], r["formatted"], r["fence"] = n(56, 63), foreignTime(b[64:72]), n(136, 143)
		if several {
			r["epoch"], r["positions"] = n(144, 151), n(152, 152)
			disks := ""
			for i := range 5 {
				if id := hex.EncodeToString(b[160+16*i : 176+16*i]); strings.Trim(id, "0") != "" {
					disks += fmt.Sprintf("%d:%s ", i+1, id)
				}
			}
			r["disks"] = disks
		}
	case "BKHR":
		r["host"], r["state"], r["armed"], r["seconds"] = n(40, 41), n(42, 42), n(43, 43), n(44, 45)
		r["highest"], r["incarnation"], r["sequence"] = n(46, 47), n(48, 55), n(56, 63)
		r["machine"], r["boot"] = hex.EncodeToString(b[64:80]), hex.EncodeToString(b[80:96])
		r["key"] = n(96, 103)
		r["name"] = text(112, n(106, 107))
		verdicts := ""
		for i := range int(n(104, 105)) {
			at := 176 + 16*i
			verdicts += fmt.Sprintf("%d/%x/%d ", n(at, at+1), n(at+8, at+15), n(at+2, at+2))
		}
		r["verdicts"] = verdicts
		complaints := ""
		for i := range int(n(108, 109)) {
			at := 432 + 8*i
			complaints += fmt.Sprintf("%d/%d ", n(at, at+1), n(at+4, at+7))
		}
		r["complaints"] = complaints
		if several {
			r["generation"], r["epoch"] = n(12, 15), n(496, 503)
		}
	case "BKDE":
		r["lock"], r["permits"], r["creation"] = n(40, 43), n(44, 45), n(48, 55)
		r["name"] = text(56, n(46, 47))
		if several {
			r["written under"], r["number"] = ticket(n(184, 191)), n(192, 199)
		}
	case "BKSL":
		r["lock"], r["host"], r["phase"], r["mode"] = n(40, 43), n(44, 45), n(46, 46), n(47, 47)
		r["incarnation"], r["creation"], r["sequence"] = n(48, 55), n(56, 63), n(64, 71)
		r["ticket"] = ticket(n(72, 79))
		r["token"] = ticket(n(80, 87))
		r["since"], r["pid"] = foreignTime(b[88:96]), n(96, 99)
		r["command"] = text(104, n(100, 101))
		r["value"] = text(184, n(102, 103))
		r["request"] = ticket(n(440, 447))
		r["asked"], r["message"] = foreignTime(b[448:456]), text(458, n(456, 457))
		if several {
			r["generation"] = n(12, 15)
		}
	}
	return r
}

func TestForeignReader(t *testing.T) {
	require.EqualValues(t, 0xe3069283, foreignCRC32C([]byte("123456789")))
	const id = "0e9f3c52-1d84-4b6a-9c37-5a2f81d6e4b0"
	header := func(magic string, address int64, r foreign) foreign {
		r["magic"], r["version"], r["address"], r["uuid"], r["checksum"] = magic, uint64(1), uint64(address), id, true
		return r
	}
	u := func(v uint64) uint64 { return v }
	superblock := func(fenceAfter uint64) foreign {
		return foreign{"stride": u(4096), "hosts": u(20), "locks": u(1000), "policy": u(1), "name": "backup-pool",
			"fence": fenceAfter, "lease": u(30_000_000), "formatted": "2026-01-02T03:04:05.678901Z"}
	}
	several := func(position uint64, r, more foreign) foreign {
		maps.Copy(r, more)
		r["version"], r["position"] = uint64(2), position
		return r
	}
	const disk = "d00102030405060708090a0b0c0d0e"
	members := foreign{"epoch": u(3), "positions": u(3), "disks": "1:" + disk + "01 2:" + disk + "02 3:" + disk + "03 "}
	zeroID := strings.Repeat("0", 32)
	live := func() foreign {
		return foreign{"host": u(3), "state": u(2), "armed": u(1), "seconds": u(60),
			"highest": u(17), "incarnation": u(0x1122334455667788), "sequence": u(41), "name": "node-3.example",
			"machine": "a00102030405060708090a0b0c0d0e0f", "boot": "b00102030405060708090a0b0c0d0e0f",
			"key": u(0xfeedc0de00000003), "verdicts": "5/99/0 20/ffffffffffffffff/0 ", "complaints": ""}
	}
	entry := func() foreign {
		return foreign{"lock": u(7), "permits": u(2), "creation": u(9),
			"name": "vm/été-01"}
	}
	held := func() foreign {
		return foreign{"lock": u(7), "host": u(3), "phase": u(3),
			"mode": u(1), "incarnation": u(0x1122334455667788), "creation": u(9), "sequence": u(12),
			"ticket": "6903605647183 of host 3, grant 0", "token": "6903605644531 of host 9, grant 5",
			"since": "2026-01-02T03:04:05.678901Z", "pid": u(4711), "command": "/usr/bin/rsync -a /srv/ /mnt/",
			"value": "generation=18\x00\xff", "request": "0 of host 0, grant 0", "asked": "unknown", "message": ""}
	}
	for name, want := range map[string]foreign{
		"superblock":             header("BKSB", 0, superblock(0)),
		"superblock-copy":        header("BKSB", 4096, superblock(0)),
		"superblock-fence-after": header("BKSB", 0, superblock(6_000_000)),
		"host-live":              header("BKHR", 4096*(2+2), live()),
		"host-verdicts": header("BKHR", 4096*(2+6), foreign{"host": u(7), "state": u(2), "armed": u(0), "seconds": u(0),
			"highest": u(20), "incarnation": u(2), "sequence": u(9), "name": "", "machine": zeroID, "boot": zeroID,
			"key": u(0), "verdicts": "1/11/0 2/22/1 20/33/2 ", "complaints": ""}),
		"host-left": header("BKHR", 4096*(2+19), foreign{"host": u(20), "state": u(3), "armed": u(0), "seconds": u(0),
			"highest": u(0), "incarnation": u(1), "sequence": u(0), "name": "", "machine": zeroID, "boot": zeroID,
			"key": u(0), "verdicts": "", "complaints": ""}),
		"host-complaints": header("BKHR", 4096*(2+1), foreign{"host": u(2), "state": u(2), "armed": u(0), "seconds": u(0),
			"highest": u(20), "incarnation": u(3), "sequence": u(8), "name": "db2", "machine": zeroID, "boot": zeroID,
			"key": u(0), "verdicts": "", "complaints": "20/0 0/1000 5/7 "}),
		"entry": header("BKDE", 4096*(2+20+6), entry()),
		"entry-free": header("BKDE", 4096*(2+20+999), foreign{"lock": u(1000), "permits": u(0), "creation": u(10),
			"name": ""}),
		"slot-held": header("BKSL", 4096*(2+20+1000+7*20+2), held()),
		"slot-idle": header("BKSL", 4096*(2+20+1000+19), foreign{"lock": u(0), "host": u(20), "phase": u(0),
			"mode": u(0), "incarnation": u(1), "creation": u(0), "sequence": u(0), "ticket": "1 of host 20, grant 0",
			"token": "0 of host 0, grant 0", "since": "unknown", "pid": u(0), "command": "", "value": "",
			"request": "0 of host 0, grant 0", "asked": "unknown", "message": ""}),
		"slot-request": header("BKSL", 4096*(2+20+1000+7*20+3), foreign{"lock": u(7), "host": u(4), "phase": u(0),
			"mode": u(0), "incarnation": u(5), "creation": u(9), "sequence": u(3), "ticket": "6903605644000 of host 4, grant 0",
			"token": "0 of host 0, grant 0", "since": "unknown", "pid": u(0), "command": "", "value": "",
			"request": "6903605647183 of host 3, grant 0", "asked": "2026-01-02T03:04:05.678901Z",
			"message": "rolling reboot, für 10 Minuten"}),
		"superblock-several":      several(2, header("BKSB", 0, superblock(0)), members),
		"superblock-several-copy": several(2, header("BKSB", 4096, superblock(0)), members),
		"superblock-vacant": several(5, header("BKSB", 0, superblock(0)), foreign{"epoch": u(4), "positions": u(5),
			"disks": "1:" + disk + "01 2:" + disk + "02 4:" + disk + "04 5:" + disk + "05 "}),
		"host-several": several(1, header("BKHR", 4096*(2+2), live()), foreign{"generation": u(0x1a2b3c4d), "epoch": u(3)}),
		"entry-several": several(1, header("BKDE", 4096*(2+20+6), entry()), foreign{
			"written under": "6903605640001 of host 9, grant 2", "number": u(0x0102030405060708)}),
		"slot-several": several(4, header("BKSL", 4096*(2+20+1000+7*20+2), held()), foreign{"generation": u(0x1a2b3c4d)}),
	} {
		require.Equal(t, want, foreignRead(golden(t, name)), name)
	}
	require.EqualValues(t, 1, layout.Version)
	require.EqualValues(t, 2, layout.VersionSeveral)
}
