package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/server"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// benchServer serves a host that is alone on a disk in memory, as bakeryd does.
func benchServer(b *testing.B, change ...func(*Config)) (socket string) {
	b.Helper()
	g := layout.Geometry{Stride: 512, Hosts: 3, Locks: 4}
	sb := layout.Superblock{UUID: layout.UUID{1, 2, 3}, Name: "bench", Geometry: g, Lease: 10 * time.Second,
		Formatted: time.Now().UTC().Truncate(time.Microsecond)}
	disk := disktest.NewMemory(max(g.Size(), layout.HeadSize), 512, 512)
	buf := blockdev.Alloc(512)
	for copy := range 2 {
		require.NoError(b, sb.Encode(buf, copy))
		require.NoError(b, disk.Open().Write(buf, g.Superblock(copy)))
	}
	log, dir := slog.New(slog.DiscardHandler), b.TempDir()
	cfg := Config{
		Devices: []string{"memory"}, HostID: 1, Name: "db1", RuntimeDir: dir, StateDir: dir, Keep: true, Logger: log, Events: events.New(clock.Boottime, log),
		Open: func() (blockdev.Device, error) {
			return disk.Open(), nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	d, err := Join(b.Context(), cfg)
	require.NoError(b, err)
	s := server.New(server.Config{Host: alone(d), Log: log})
	ln, err := server.Listen(filepath.Join(dir, "s"))
	require.NoError(b, err)
	go func() { _ = s.Serve(ln) }()
	b.Cleanup(func() {
		require.NoError(b, s.Shutdown())
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(b, d.Close(ctx))
	})
	return filepath.Join(dir, "s")
}

func lockOnce(b *testing.B, c *client.Client) {
	h, err := c.Lock(context.Background(), "x", client.Options{})
	if err == nil {
		err = h.Unlock()
	}
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkLink measures an acquire and release through bakeryd without IO, including its client.
func BenchmarkLink(b *testing.B) {
	c := client.New(benchServer(b))
	defer c.Close()
	lockOnce(b, c)
	b.ReportAllocs()
	for b.Loop() {
		lockOnce(b, c)
	}
}

// BenchmarkLinkHandoff passes a lock among 16 clients.
func BenchmarkLinkHandoff(b *testing.B) {
	socket := benchServer(b)
	lockOnce(b, client.New(socket))
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		c := client.New(socket)
		defer c.Close()
		for pb.Next() {
			lockOnce(b, c)
		}
	})
}

// BenchmarkLinkAgain measures an acquire and release by the same client, for which the host lingers.
func BenchmarkLinkAgain(b *testing.B) {
	c := client.New(benchServer(b, func(cfg *Config) { cfg.Linger = 5 * time.Millisecond }))
	defer c.Close()
	lockOnce(b, c)
	b.ReportAllocs()
	for b.Loop() {
		lockOnce(b, c)
	}
}
