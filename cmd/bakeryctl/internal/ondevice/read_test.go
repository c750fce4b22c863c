package ondevice

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// busyDevice has had a request in flight since a time.
type busyDevice struct {
	blockdev.Device
	since atomic.Int64 // on the clock of the bubble
}

func newBusyDevice() *busyDevice {
	d := new(busyDevice)
	d.since.Store(time.Now().UnixNano())
	return d
}

func (d *busyDevice) Stats() blockdev.Stats {
	return blockdev.Stats{Oldest: time.Since(time.Unix(0, d.since.Load()))}
}

// lines receives what is printed.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// watched returns a reading of the device, nil if it is not opened yet, and what awaiting it prints and returns.
func watched(t *testing.T, dev blockdev.Device) (r *reading, out lines, ended chan error) {
	r = &reading{paths: []string{"/dev/a", "/dev/b"}, begun: time.Now(), done: make(chan struct{})}
	if dev != nil {
		r.opened.Store(&dev)
	}
	out, ended = make(lines, 10), make(chan error, 1)
	go func() {
		ended <- r.await(t.Context(), cli.Patience{Out: out, Notice: 3 * time.Second, Limit: 15 * time.Second})
	}()
	return r, out, ended
}

func TestReading_Hangs_IsPrintedAndGivenUp(t *testing.T) {
	for _, opened := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var dev blockdev.Device
			if opened {
				dev = newBusyDevice()
			}
			_, out, ended := watched(t, dev)
			time.Sleep(3*time.Second - time.Millisecond)
			synctest.Wait()
			require.Empty(t, out)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, "bakeryctl: waiting for /dev/a, /dev/b: no answer for 3 s\n", <-out)
			err := <-ended
			require.ErrorIs(t, err, ErrHangs)
			require.EqualError(t, err, "read /dev/a, /dev/b: the device hangs: no answer within 30 s")
			require.Equal(t, "check the device: dmesg, multipath -ll, iostat -x 1", Failure(err).Hint)
			require.Empty(t, out)
		})
	}
}

// TestReading_Interrupted_Returns: the request in flight cannot be ended.
func TestReading_Interrupted_Returns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &reading{begun: time.Now(), done: make(chan struct{})}
	require.ErrorIs(t, r.await(ctx, cli.Patience{}), context.Canceled)
}

// TestReading_RequestsReturn_HasNoLimit: to check a large lockspace takes minutes.
func TestReading_RequestsReturn_HasNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := newBusyDevice()
		r, out, ended := watched(t, dev)
		for range 100 {
			time.Sleep(2900 * time.Millisecond)
			synctest.Wait()
			dev.since.Store(time.Now().UnixNano())
		}
		require.Empty(t, ended)
		close(r.done)
		require.NoError(t, <-ended)
		require.Empty(t, out)
	})
}
