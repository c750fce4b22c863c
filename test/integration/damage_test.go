//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestReformatUnderARunningDaemon: the daemon loses its lease and stops its command before the new
// lockspace is made. Then it joins that by itself.
func TestReformatUnderARunningDaemon(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, leased(3*time.Second))
		a, b := s.host(1), s.machine("2")
		holder, first := a.holds("x")
		waiter := a.take("x")
		a.queues("x", 1)
		old, incarnation := s.uuid, a.incarnation()

		r := execute(t, plain.bakeryctl, "format", b.dev, "--hosts", "8", "--locks", "16")
		require.Equal(t, 66, r.code)
		require.Contains(t, r.stderr, "is using it now")
		require.Contains(t, r.stderr, "host-"+filepath.Base(a.dev))

		s.format("--force", "--hosts", "8", "--locks", "16", leased(3*time.Second))
		require.False(t, holder.running(), "the command runs in a lockspace that is gone")
		holder.exits(75)
		require.True(t, holder.silent())
		waiter.exits(69)
		require.Contains(t, a.said(), "the lockspace on the device is another one, or gone")
		require.NotEqual(t, old, s.uuid)
		a.rejoins(incarnation)
		require.Equal(t, s.uuid, a.status().Lockspace.UUID)
		b.up()
		next := b.take("x")
		require.Greater(t, next.entered(), first)
		next.letGo()
		require.Zero(t, a.lock("x", "--", "true").code)
	})
}

func TestDeviceTooSmall(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newImage(t, sector)
		r := execute(t, plain.bakeryctl, "format", s.dev, "--hosts", "100", "--locks", "1000")
		need := layout.Geometry{Stride: sector, Hosts: 100, Locks: 1000}.Size()
		require.Equal(t, 66, r.code)
		require.Contains(t, r.stderr, "device is too small")
		require.Contains(t, r.stderr, "need "+itoa(need)+" bytes")
		require.Contains(t, r.stderr, "would fit")
		image, err := os.ReadFile(s.file)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("\x00", imageSize), string(image), "format wrote to it")

		// A lockspace on a device that has shrunk.
		s.format("--hosts", "8", "--locks", "16", "--lease", "1s")
		require.NoError(t, os.Truncate(s.file, 16*4096))
		small := loopOver(t, s.file, sector)
		h := s.machine("1")
		h.dev = small
		h.start()
		h.exits(66)
		require.Contains(t, h.said(), "it needs "+itoa(s.geo.Size())+" bytes")
	})
}

func TestDamagedSuperblock(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		s.damaged = true
		a := s.host(1)
		s.damage(s.geo.Superblock(0))
		require.Zero(t, a.lock("x", "--", "true").code)
		b := s.host(2)
		require.Contains(t, b.said(), "superblock is damaged, using its copy")
		require.Contains(t, b.status().Lockspace.Warnings, "the superblock is damaged, its copy is in use")
		holder, _ := a.holds("x")
		require.Equal(t, 1, b.lock("-n", "x", "--", "true").code)
		holder.letGo()
		b.leave()
		a.leave()
		s.damage(s.geo.Superblock(1))
		b.start()
		b.exits(66)
		require.Contains(t, b.said(), "no lockspace on "+b.dev)
		r := execute(t, plain.bakeryctl, "status", "--device", s.dev)
		require.Equal(t, 66, r.code)
		require.Contains(t, r.stderr, "hint: ")
		require.Equal(t, 66, execute(t, plain.bakeryctl, "dump", s.dev).code)
		r = execute(t, plain.bakeryctl, "check", s.dev, "--repair")
		require.Equal(t, 66, r.code)
		require.Contains(t, r.stderr, "lsblk -f shows what the device holds")
		// A device that may be in use is formatted only with --force.
		require.Equal(t, 66, execute(t, plain.bakeryctl, "format", s.dev).code)
		s.format("--force", "--hosts", "8", "--locks", "16", leased(3*time.Second))
		s.damaged = false
		a.up()
		require.Zero(t, a.lock("x", "--", "true").code)
	})
}

// TestDamagedSlot of a live host: others wait until it has repaired the slot.
func TestDamagedSlot(t *testing.T) {
	onSectors(t, func(t *testing.T, s *space) {
		a, b := s.host(1), s.host(2)
		require.Zero(t, a.lock("idle", "--", "true").code)
		require.Zero(t, b.lock("unused", "--", "true").code)
		slot := func(name string, host int) int64 { return s.geo.Slot(a.report(name).Number, host) }
		for _, name := range []string{"idle", "unused"} {
			s.damage(slot(name, 1))
			require.Zero(t, b.lock("-w", "120", name, "--", "true").code, name)
			require.Zero(t, a.lock("-w", "120", name, "--", "true").code, name)
			s.damage(slot(name, 2)) // the own slot
			require.Zero(t, b.lock("-w", "120", name, "--", "true").code, name)
		}
		// The slot of a holder: no host may enter.
		holder, first := a.holds("idle")
		b.settles(a, "idle")
		s.damage(slot("idle", 1))
		require.Equal(t, 1, b.lock("-w", "0.2", "idle", "--", "true").code)
		next := b.take("idle")
		b.sees(b, "idle") // b waits, so the slot ahead is repaired
		next.outside()
		// The slot of a waiter.
		s.damage(slot("idle", 2))
		holder.letGo()
		require.Greater(t, next.entered(), first)
		next.letGo()
		require.Zero(t, a.lock("-w", "120", "idle", "--", "true").code)
	})
}

// TestDamagedHostRecord: a running host continues and rewrites its record.
func TestDamagedHostRecord(t *testing.T) {
	bySector(t, func(t *testing.T, sector int) {
		s := newSpace(t, sector, leasedToWatch(5*time.Second))
		a, b := s.host(1), s.host(2)
		holder, _ := a.holds("x")
		b.settles(a, "x")
		s.damage(s.geo.Host(1))
		require.Equal(t, 1, b.lock("-w", "0.2", "x", "--", "true").code)
		eventually(t, "the record is rewritten", func() bool {
			d := s.hostRecord(1)
			return d.Error == "" && d.Record.State == layout.StateLive
		})
		require.Equal(t, 1, b.lock("-n", "x", "--", "true").code)
		holder.letGo()
		require.Zero(t, b.lock("-w", "120", "x", "--", "true").code)
		require.Zero(t, a.lock("-w", "120", "x", "--", "true").code)
		a.leave()
		// The record of a host that is down: its bakeryd takes the id when no live host can have
		// it.
		s.damage(s.geo.Host(1))
		a.up()
		require.Contains(t, a.said(), "the host record cannot be read")
		require.Zero(t, a.lock("-w", "120", "x", "--", "true").code)
		require.Zero(t, b.lock("-w", "120", "other", "--", "true").code)
	})
}

// TestDamagedDirectory: readable locks work; a name that the damage may hide is refused, and no
// lock is created. A host restores the entries of locks that it has used.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	s := newSpace(t, 512)
	s.damaged = true
	a, b := s.host(1), s.host(2)
	require.Zero(t, a.lock("known", "--", "true").code)
	require.Zero(t, a.lock("other", "--", "true").code)
	s.damage(s.geo.Entry(s.geo.Locks)) // may be any lock, as far as the hosts know
	require.Zero(t, a.lock("other", "--", "true").code)
	require.Zero(t, b.lock("other", "--", "true").code)
	for _, h := range []*host{a, b} {
		r := h.lock("-w", "5", "new", "--", "true")
		require.Equal(t, 66, r.code)
		require.Contains(t, r.stderr, "the lock directory is damaged")
		require.Contains(t, r.stderr, "hint: bakeryctl check")
	}
	require.Len(t, b.status().Damaged, 1)
	require.Zero(t, a.lock("other", "--", "true").code)
	holder, first := a.holds("known")
	s.damage(s.geo.Entry(a.report("known").Number))
	eventually(t, "the holder's host restores the entry", func() bool { return len(b.status().Damaged) == 1 })
	require.Equal(t, 1, b.lock("-n", "known", "--", "true").code)
	next := b.take("known")
	holder.letGo()
	require.Greater(t, next.entered(), first)
	next.letGo()
}
