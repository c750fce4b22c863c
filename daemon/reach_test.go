package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// tableReads counts one host's reads of the host table.
type tableReads struct {
	blockdev.Device
	table int64 // where it ends

	mu    sync.Mutex
	bytes []int // of each request
}

func (d *tableReads) Read(p []byte, off int64) error {
	if off < d.table {
		d.mu.Lock()
		d.bytes = append(d.bytes, len(p))
		d.mu.Unlock()
	}
	return d.Device.Read(p, off)
}

// since returns the requests after the first n.
func (d *tableReads) since(n int) []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int(nil), d.bytes[n:]...)
}

// TestReadsOfTheTable: the number of hosts that the lockspace was formatted for does not change the
// reads that keep a lease. Only the lowest host reads the whole table, once a lease.
func TestReadsOfTheTable(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{3, 2000} {
		runInBubble(t, fmt.Sprint(hosts), func(t *testing.T) {
			c := newCluster(t, hosts, 1)
			stride := c.Geo.Stride
			var reads []*tableReads
			for id := 1; id <= 3; id++ {
				r := &tableReads{Device: c.Disk.Open(), table: c.Geo.Entry(1)}
				reads = append(reads, r)
				c.host(id, through(r))
			}
			reach := 2 + min(5, hosts)
			joined := []int{len(reads[0].since(0)), 0, len(reads[2].since(0))}
			begun := time.Now()
			eventually(t, "three leases of renewals", func() bool {
				return len(reads[0].since(joined[0])) >= 18 && len(reads[2].since(joined[2])) >= 18
			})
			leases := int(time.Since(begun)/c.SB.Lease) + 1
			for _, i := range []int{0, 2} {
				whole := 0
				for _, n := range reads[i].since(joined[i]) {
					if n > reach*stride {
						require.LessOrEqual(t, n, lockspace.ScanChunk)
						whole++
					}
				}
				t.Logf("host %d: %d of %d reads were of the whole table", i+1, whole, len(reads[i].since(joined[i])))
				// On a busy machine the lower hosts sometimes do.
				require.LessOrEqual(t, whole, 2*leases, "host 3 reads it only if the lower ones seem silent")
			}
		})
	}
}

// TestFarHostJoins: a host with an id beyond the reads of the others is found within about a lease,
// and excludes them.
func TestFarHostJoins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 2000, 4)
		one, two := c.host(1), c.host(2)
		require.LessOrEqual(t, two.mem.Highest(), 5)
		begun := time.Now()
		far := c.host(1500)
		t.Logf("joined after %v", time.Since(begun).Round(time.Millisecond))
		for _, d := range []*Host{one, two} {
			require.GreaterOrEqual(t, d.mem.Highest(), 1500)
		}
		h := acquire(t, far, locks.Request{Name: "x"})
		for _, d := range []*Host{one, two} {
			acquireFails(t, d, locks.Request{Name: "x", Try: true}, api.ErrBusy)
		}
		require.NoError(t, h.Release())
		require.NoError(t, acquire(t, one, locks.Request{Name: "x"}).Release())
		shown, err := two.Status()
		require.NoError(t, err)
		require.Len(t, shown.Hosts, 3)
		for _, h := range shown.Hosts {
			require.Equal(t, report.HealthLive, h.Health)
		}
	})
}

// BenchmarkTableRead measures a read of the host table, which is made for every renewal.
func BenchmarkTableRead(b *testing.B) {
	for _, c := range []struct{ joined, formatted int }{{3, 3}, {3, 2000}, {64, 2000}} {
		b.Run(fmt.Sprintf("%d of %d", c.joined, c.formatted), func(b *testing.B) {
			g := layout.Geometry{Stride: 4096, Hosts: c.formatted, Locks: 1}
			sb := layout.Superblock{UUID: layout.UUID{1}, Geometry: g, Lease: layout.MaxLease, Formatted: time.Now().UTC().Truncate(time.Microsecond)}
			dev := disktest.NewMemory(max(g.Size(), layout.HeadSize), 4096, 4096).Open()
			buf := blockdev.Alloc(g.Stride)
			for copy := range 2 {
				require.NoError(b, sb.Encode(buf, copy))
				require.NoError(b, dev.Write(buf, g.Superblock(copy)))
			}
			for id := 2; id <= c.joined; id++ {
				require.NoError(b, sb.Space().EncodeHost(buf, layout.HostRecord{ID: id, State: layout.StateLive, Incarnation: uint64(id), Sequence: 1, ReadHorizon: min(c.formatted, c.joined+2), Name: "db"}))
				require.NoError(b, dev.Write(buf, g.Host(id)))
			}
			dir := b.TempDir()
			d, err := Join(b.Context(), Config{Devices: []string{"memory"}, HostID: 1, Name: "db1", RuntimeDir: dir, StateDir: dir, Logger: slog.New(slog.DiscardHandler),
				Open: func() (blockdev.Device, error) { return dev, nil }})
			require.NoError(b, err)
			defer func() { require.NoError(b, d.Close(context.Background())) }()
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := d.mem.ReadHosts(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
