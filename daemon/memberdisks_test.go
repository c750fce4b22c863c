package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/format"
	"github.com/bakeryd/bakeryd/daemon/memberdisks"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// ownDirs returns an identity with directories for this test alone.
func ownDirs(t *testing.T) hostid.Options {
	return hostid.Options{RuntimeDir: t.TempDir(), StateDir: t.TempDir(), Name: "host"}
}

// TestMemberDisks_DiskIsMissing_AndReturns: both are logged, and are events.
func TestMemberDisks_DiskIsMissing_AndReturns(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a", "b", "c"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	_, err := format.Format(t.Context(), paths, format.Options{Hosts: 2, Locks: 4, Lease: lockspace.DefaultLease, Policy: layout.PolicyLease})
	require.NoError(t, err)
	away := filepath.Join(dir, "away")
	require.NoError(t, os.Rename(paths[2], away))

	var log bytes.Buffer // written before the journal is
	n := newNotebook(t)
	d := memberdisks.New(slog.New(slog.NewTextHandler(&log, nil)), n.log, ownDirs(t))
	dev, err := d.Open(paths, lockspace.DiskOptions{})
	require.NoError(t, err)
	defer dev.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []events.Event
	require.ErrorIs(t, n.log.Follow(ctx, events.Query{}, func(all []events.Event) error {
		if got = append(got, all...); len(got) > 1 {
			cancel()
			return nil
		}
		return os.Rename(away, paths[2])
	}), context.Canceled)

	require.Equal(t, events.DiskLost, got[0].Kind)
	require.Equal(t, "disk 3 ("+paths[2]+"), 2 of 3 up: open "+paths[2]+": no such file or directory", got[0].Reason)
	require.Equal(t, events.DiskBack, got[1].Kind)
	require.Equal(t, "disk 3 ("+paths[2]+"), 3 of 3 up", got[1].Reason)
	require.Len(t, got, 2)
	require.Regexp(t, `level=WARN msg="member disk is lost" disk=3 device=\S*/c up=2 of=3 err="open `, log.String())
	require.Regexp(t, `level=INFO msg="member disk is back" disk=3 device=\S*/c up=3 of=3`, log.String())
	require.Equal(t, mirror.Up, dev.(*lockspace.Disks).Members()[2].State)
}

// TestMemberDisks_ReasonOfALostDiskChanges_IsLogged: the first reason says nothing about what is wrong now.
func TestMemberDisks_ReasonOfALostDiskChanges_IsLogged(t *testing.T) {
	paths := fencedDisks(t)
	lost := paths[2]
	require.NoError(t, os.Remove(lost))
	log := new(logtest.Log)
	d := memberdisks.New(slog.New(slog.NewTextHandler(log, nil)), nil, ownDirs(t))
	dev, err := d.Open(paths, lockspace.DiskOptions{Retry: time.Millisecond})
	require.NoError(t, err)
	defer dev.Close()
	ended := make(chan struct{})
	defer close(ended)
	go d.Watch(ended)
	eventually(t, "the first reason", func() bool {
		return strings.Contains(log.String(), `msg="member disk is lost" disk=3 device=`+lost+` up=2 of=3 err="open `)
	})
	require.NoError(t, os.WriteFile(lost+".new", make([]byte, 8<<20), 0o600))
	require.NoError(t, os.Rename(lost+".new", lost))
	eventually(t, "the second reason", func() bool {
		return strings.Contains(log.String(), `msg="member disk is still lost, for another reason" disk=3 device=`+lost+` up=2 of=3 err=`)
	})
	require.Contains(t, log.String(), "never formatted")
	require.Equal(t, 1, strings.Count(log.String(), "member disk is lost"))
}

// TestMemberDisks_OldDiskIsOpenedLate_NewOneCounts: the check of a disk that was replaced returns after that of the
// disk that replaced it.
func TestMemberDisks_OldDiskIsOpenedLate_NewOneCounts(t *testing.T) {
	paths := fencedDisks(t)
	d := memberdisks.New(slog.New(slog.DiscardHandler), nil, ownDirs(t))
	dev, err := d.Open(paths, lockspace.DiskOptions{})
	require.NoError(t, err)
	defer dev.Close()
	set := dev.(*lockspace.Disks)
	old, before := d.Disks()[1], set.Superblock()
	require.True(t, d.Has(1, old))

	next := before
	next.Members.Epoch, next.Members.Disks[1], next.Position = 2, layout.UUID{9}, 2
	path := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.WriteFile(path, make([]byte, before.Geometry.Size()), 0o600))
	fresh, err := blockdev.Open(path, blockdev.Options{})
	require.NoError(t, err)
	lockspacetest.PutSuperblocks(t, fresh, next)
	require.NoError(t, fresh.Close())
	set.Use(next.Members, path)
	eventually(t, "the new disk is up", func() bool { return set.Members()[1].State == mirror.Up })
	late, err := blockdev.Open(paths[1], blockdev.Options{})
	require.NoError(t, err)
	defer late.Close()
	require.NoError(t, d.Lock(1, late, before))
	require.False(t, d.Has(1, old))
	require.Equal(t, path, d.Disks()[1].Path)
	require.True(t, d.Has(1, d.Disks()[1]))
	require.NoError(t, late.Close())
	d.Take(1)
	require.Zero(t, set.Members()[1].Failures)
}

// TestMemberDisks_RequestOfAnEarlierProcessToAVacatedDisk_IsInFlight (VACANT, RETURNED): another host may still use
// that disk. When the position is filled, none does.
func TestMemberDisks_RequestOfAnEarlierProcessToAVacatedDisk_IsInFlight(t *testing.T) {
	paths := fencedDisks(t)
	dirs := ownDirs(t)
	d := memberdisks.New(slog.New(slog.DiscardHandler), nil, dirs)
	dev, err := d.Open(paths, lockspace.DiskOptions{})
	require.NoError(t, err)
	defer dev.Close()
	set := dev.(*lockspace.Disks)
	sb := set.Superblock()
	earlier, err := blockdev.Open(paths[2], blockdev.Options{}) // its process is gone, and a request in flight
	require.NoError(t, err)
	defer earlier.Close()
	file, err := dirs.KeepDisk(earlier, sb.UUID, sb.Members.Disks[2])
	require.NoError(t, err)
	require.NoError(t, hostid.LockDisk(file, 1))
	d.Take(1)
	require.Equal(t, mirror.At(2), set.Drop(0, sb.Geometry.Size()))

	next := sb.Members
	next.Epoch, next.Disks[2] = 2, layout.UUID{}
	set.Use(next, "")
	require.Equal(t, mirror.At(2), set.Drop(0, sb.Geometry.Size()))
	next.Epoch, next.Disks[2] = 3, layout.UUID{9}
	set.Use(next, "")
	require.Zero(t, set.Drop(0, sb.Geometry.Size()))
}
