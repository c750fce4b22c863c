package scale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/layout"
)

// stride is that of disks with sectors of 512 bytes. With 4096 all byte counts are eight times as
// large.
const stride = 512

// space is a lockspace on a disk in memory.
type space struct {
	disk *disk
	sb   layout.Superblock
	dir  string // for the files of the hosts
}

func newSpace(dir string, hosts, locks int, lease time.Duration) (*space, error) {
	g := layout.Geometry{Stride: stride, Hosts: hosts, Locks: locks}
	d, err := newDisk(g)
	if err != nil {
		return nil, err
	}
	s := &space{disk: d, dir: dir, sb: layout.Superblock{Name: "scale", Geometry: g, Lease: lease,
		Formatted: time.Now().UTC().Truncate(time.Microsecond)}}
	if _, err := rand.Read(s.sb.UUID[:]); err != nil {
		return nil, err
	}
	buf := blockdev.Alloc(stride)
	for copy := range 2 {
		if err := s.sb.Encode(buf, copy); err != nil {
			return nil, err
		}
		if err := s.put(buf, g.Superblock(copy)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *space) put(record []byte, off int64) error {
	_, err := s.disk.file.WriteAt(record, off)
	return err
}

func (s *space) close() { _ = s.disk.file.Close() }

func lockName(n int) string { return fmt.Sprintf("lock-%05d", n) }

// fill writes a directory entry for every possible lock, as hosts would.
func (s *space) fill() error {
	buf := blockdev.Alloc(stride)
	made := bakery.ClockNumber(time.Now(), s.sb.Formatted)
	for lock := 1; lock <= s.sb.Geometry.Locks; lock++ {
		e := layout.Entry{Lock: lock, Name: lockName(lock), Permits: 1, Creation: made}
		if err := s.sb.Space().EncodeEntry(buf, e); err != nil {
			return err
		}
		if err := s.put(buf, s.sb.Geometry.Entry(lock)); err != nil {
			return err
		}
	}
	return nil
}

// config returns the configuration of a host with its own files and handle.
func (s *space) config(id int, latency time.Duration) (daemon.Config, *handle, error) {
	dir := filepath.Join(s.dir, fmt.Sprintf("host-%d", id))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return daemon.Config{}, nil, err
	}
	h := s.disk.open(latency)
	cfg := daemon.Config{Devices: []string{"memory"}, HostID: id, Name: fmt.Sprintf("host%d", id), RuntimeDir: dir, StateDir: dir,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Open:   func() (blockdev.Device, error) { return h, nil }}
	return cfg, h, nil
}

// host is a real host in this process.
type host struct {
	*daemon.Host
	handle *handle
}

func (s *space) join(ctx context.Context, id int, latency time.Duration) (*host, error) {
	cfg, h, err := s.config(id, latency)
	if err != nil {
		return nil, err
	}
	d, err := daemon.Join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &host{d, h}, nil
}

func (h *host) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return h.Close(ctx)
}

func leaveAll(hosts []*host) error {
	errs := make(chan error, len(hosts))
	for _, h := range hosts {
		go func() { errs <- h.leave() }()
	}
	var all error
	for range hosts {
		all = errors.Join(all, <-errs)
	}
	return all
}
