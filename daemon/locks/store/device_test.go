package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/layout"
)

// TestSeries_Failures_OneIOSinceTheFirstTry: failures that other hosts may wait for.
func TestSeries_Failures_OneIOSinceTheFirstTry(t *testing.T) {
	watch := new(stall.Watch)
	dev := (&Disk{Clock: clock.Boottime, Stalls: watch}).device(3, "x", false)
	s := dev.Series(512)
	s.Begin(clock.Boottime.Now())
	s.Failed(unix.EIO)
	_, ok := watch.Oldest()
	require.False(t, ok, "the slot is idle: no other host waits")
	dev.part.Store(true)
	s.Failed(layout.ErrChecksum)
	_, ok = watch.Oldest()
	require.False(t, ok, "a damaged record is the same to all hosts")
	began := s.began
	s.Begin(clock.Boottime.Now())
	s.Failed(unix.EIO)
	s.Failed(unix.EIO)
	require.Equal(t, []stall.IO{{Lock: 3, Name: "x", Offset: 512, Since: began}}, watch.Before(clock.Boottime.Now()))
	s.End()
	_, ok = watch.Oldest()
	require.False(t, ok)
}
