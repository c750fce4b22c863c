//go:build integration

package integration

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestVandalisedDevice: garbage and flipped bits land on the device while commands run under locks. No two run together, no
// bakeryd ends, the damage is told with what mends it; and when it ends, all goes on.
func TestVandalisedDevice(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector)
		s.damaged = true
		hosts := s.hosts(3)
		for _, h := range hosts {
			require.Zero(t, h.lock("-w", "120", "a", "--", "true").code)
			require.Zero(t, h.lock("-w", "120", "b", "--", "true").code)
		}
		held := hosts[0].take("b")
		first := held.entered()
		hosts[1].settles(hosts[0], "b")
		places := []int64{s.geo.Host(1), s.geo.Host(2), s.geo.Host(3), s.geo.Superblock(1)}
		for _, name := range []string{"a", "b"} {
			lock := hosts[0].report(name).Lock
			places = append(places, s.geo.Entry(lock))
			for id := 1; id <= 3; id++ {
				places = append(places, s.geo.Slot(lock, id), s.geo.Slot(0, id))
			}
		}
		var workers []*process
		for _, h := range hosts {
			// Whoever is inside makes a directory that nobody else can have made.
			script := `for i in $(seq 200); do ` + h.programs.bakeryctl + ` --socket ` + h.socket + ` lock -w 1 a -- sh -c 'mkdir ` + s.dir + `/inside || echo twice; sleep 0.02; rmdir ` + s.dir + `/inside' 2>&1; done; echo done`
			workers = append(workers, launch(t, h.dir, "sh", "-c", script))
		}
		device, err := os.OpenFile(s.file, os.O_RDWR, 0) // as the loop devices see it
		require.NoError(t, err)
		defer device.Close()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		record := make([]byte, layout.RecordSize)
		origins := map[string]int64{} // whose place a record was copied from; brought back there, it would undo a write
		for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(time.Duration(dice.IntN(60)) * time.Millisecond) {
			off := places[dice.IntN(len(places))]
			switch dice.IntN(3) {
			case 0: // garbage at any byte
				at := dice.IntN(layout.RecordSize - 8)
				garbage := make([]byte, 1+dice.IntN(8))
				for i := range garbage {
					garbage[i] = byte(1 + dice.IntN(255))
				}
				_, err = device.WriteAt(garbage, off+int64(at))
			case 1: // all of it
				for i := range record {
					record[i] = byte(dice.Uint32())
				}
				_, err = device.WriteAt(record, off)
			case 2: // the record of another place
				other := places[dice.IntN(len(places))]
				if other == off {
					continue
				}
				if _, err = device.ReadAt(record, other); err != nil || bytes.Equal(record, make([]byte, len(record))) { // zeroes are a virgin record anywhere
					break
				}
				if _, known := origins[string(record)]; !known {
					origins[string(record)] = other
				}
				if origins[string(record)] != off {
					_, err = device.WriteAt(record, off)
				}
			}
			require.NoError(t, err)
			require.NotZero(t, hosts[1].lock("-n", "b", "--", "true").code, "it is held")
		}
		found := execute(t, plain.bakeryctl, "check", s.dev)
		t.Logf("check says:\n%s", found.stdout)
		if found.code != 0 {
			require.Contains(t, found.stdout+found.stderr, "byte")
		}
		require.NotEqual(t, 66, execute(t, plain.bakeryctl, "check", "--repair", s.dev).code, "the copy of the superblock at least can be mended")
		for _, w := range workers {
			w.signal(9)
		}
		require.True(t, held.running(), held.said())
		for _, h := range hosts {
			eventually(t, "every host has every lock again", func() bool {
				require.True(t, h.running(), h.said())
				return h.lock("-w", "5", "a", "--", "true").code == 0
			})
			require.NotContains(t, h.said(), "lease lost")
		}
		for _, w := range workers {
			for line, ok := w.next(); ok; line, ok = w.next() {
				require.NotEqual(t, "twice", strings.TrimSpace(line), "two were inside")
				require.NotContains(t, line, "File exists")
			}
		}
		held.letGo()
		next := hosts[2].take("b")
		require.Greater(t, next.entered(), first)
		next.letGo()
	})
}
