package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bakeryd/bakeryd/layout"
)

func TestGeometryValidate(t *testing.T) {
	good := layout.Geometry{Stride: 4096, Hosts: 20, Locks: 1000}
	for _, c := range []struct {
		name string
		g    layout.Geometry
		want string // empty if valid
	}{
		{"usual", good, ""},
		{"smallest", layout.Geometry{Stride: 512, Hosts: 1, Locks: 1}, ""},
		{"largest", layout.Geometry{Stride: 65536, Hosts: 2000, Locks: 65536}, ""},
		{"zero", layout.Geometry{}, "stride 0, want a power of two from 512 to 65536: value not allowed"},
		{"negative stride", layout.Geometry{Stride: -512, Hosts: 1, Locks: 1}, "stride -512"},
		{"stride below", layout.Geometry{Stride: 256, Hosts: 1, Locks: 1}, "stride 256"},
		{"stride above", layout.Geometry{Stride: 131072, Hosts: 1, Locks: 1}, "stride 131072"},
		{"stride odd", layout.Geometry{Stride: 520, Hosts: 1, Locks: 1}, "stride 520"},
		{"no hosts", layout.Geometry{Stride: 512, Hosts: 0, Locks: 1}, "hosts 0, want 1 to 2000: value not allowed"},
		{"hosts above", layout.Geometry{Stride: 512, Hosts: 2001, Locks: 1}, "hosts 2001"},
		{"no locks", layout.Geometry{Stride: 512, Hosts: 1, Locks: 0}, "locks 0, want 1 to 65536: value not allowed"},
		{"locks above", layout.Geometry{Stride: 512, Hosts: 1, Locks: 65537}, "locks 65537"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.g.Validate()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, layout.ErrField)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestGeometryExample(t *testing.T) {
	g := layout.Geometry{Stride: 4096, Hosts: 20, Locks: 1000}
	require.EqualValues(t, 0, g.Superblock(0))
	require.EqualValues(t, 4096, g.Superblock(1))
	require.EqualValues(t, 16384, g.Host(3))
	require.EqualValues(t, 114688, g.Entry(7))
	require.EqualValues(t, 4186112, g.Slot(0, 1))
	require.EqualValues(t, 4767744, g.Slot(7, 3))
	require.EqualValues(t, 86188032, g.Size())
	large := layout.Geometry{Stride: 65536, Hosts: 2000, Locks: 65536}
	require.EqualValues(t, int64(2+2000+65536+65537*2000)*65536, large.Size())
}

// Walking all records in disk order visits every stride once.
func TestGeometryIsDense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := layout.Geometry{
			Stride: 512 << rapid.IntRange(0, 7).Draw(t, "stride"),
			Hosts:  rapid.IntRange(1, 30).Draw(t, "hosts"),
			Locks:  rapid.IntRange(1, 30).Draw(t, "locks"),
		}
		require.NoError(t, g.Validate())
		next := int64(0)
		visit := func(address int64) {
			require.Equal(t, next, address)
			next += int64(g.Stride)
		}
		visit(g.Superblock(0))
		visit(g.Superblock(1))
		for id := 1; id <= g.Hosts; id++ {
			visit(g.Host(id))
		}
		for lock := 1; lock <= g.Locks; lock++ {
			visit(g.Entry(lock))
		}
		for lock := 0; lock <= g.Locks; lock++ {
			for host := 1; host <= g.Hosts; host++ {
				visit(g.Slot(lock, host))
			}
		}
		require.Equal(t, next, g.Size())
	})
}

func TestGeometryPanicsOutside(t *testing.T) {
	g := layout.Geometry{Stride: 512, Hosts: 3, Locks: 5}
	s := layout.Space{UUID: testUUID, Geometry: g}
	buf := make([]byte, 512)
	for name, f := range map[string]func(){
		"superblock -1":    func() { g.Superblock(-1) },
		"superblock 2":     func() { g.Superblock(2) },
		"host 0":           func() { g.Host(0) },
		"host 4":           func() { g.Host(4) },
		"entry 0":          func() { g.Entry(0) },
		"entry 6":          func() { g.Entry(6) },
		"slot -1 1":        func() { g.Slot(-1, 1) },
		"slot 6 1":         func() { g.Slot(6, 1) },
		"slot 0 0":         func() { g.Slot(0, 0) },
		"slot 5 4":         func() { g.Slot(5, 4) },
		"decode host 4":    func() { _, _ = s.DecodeHost(buf, 4) },
		"decode entry 0":   func() { _, _ = s.DecodeEntry(buf, 0) },
		"decode slot 6 1":  func() { _, _ = s.DecodeSlot(buf, 6, 1) },
		"decode copy 2":    func() { _, _ = layout.DecodeSuperblock(buf, 2) },
		"encode copy 2":    func() { _ = testSuperblock.Encode(buf, 2) },
		"ticket of host 0": func() { layout.MakeTicket(1, 0) },
		"host 2001":        func() { layout.MakeTicket(1, 2001) },
		"number 2^44":      func() { layout.MakeTicket(1<<44, 1) },
		"grant -1":         func() { layout.MakeTicket(1, 1).Grant(-1) },
		"grant 256":        func() { layout.MakeTicket(1, 1).Grant(256) },
	} {
		require.Panics(t, f, name)
	}
}
