package watchdog_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
	"github.com/bakeryd/bakeryd/test/watchdogtest"
)

func TestContract(t *testing.T) {
	for name, noStop := range map[string]bool{"told to stop": false, "magic close alone": true} {
		t.Run(name, func(t *testing.T) {
			d := watchdog.NewDriver()
			d.NoStop = noStop
			contract(t, func(want time.Duration) (watchdog.Device, error) {
				w, err := d.Open(want)
				if err != nil {
					return nil, err
				}
				return w, nil
			})
			require.False(t, d.Armed)
			require.False(t, d.IsOpen)
		})
	}
	t.Run("fake", func(t *testing.T) {
		h := watchdogtest.New(func() time.Duration { return 0 })
		contract(t, func(want time.Duration) (watchdog.Device, error) { return h.Open("fake", want) })
		require.False(t, h.Armed())
	})
}

func TestTimeoutIsWhatTheDriverMadeOfIt(t *testing.T) {
	d := watchdog.NewDriver()
	d.Step = 8
	w, err := d.Open(9*time.Second + 1)
	require.NoError(t, err)
	require.Equal(t, 16*time.Second, w.Timeout())
	require.Equal(t, "card", w.Driver())
	require.True(t, d.Armed)
	require.Equal(t, 1, d.Fed, "the new time-out counts from its setting")
}

func TestFixedTimeoutIsTaken(t *testing.T) {
	d := watchdog.NewDriver()
	d.SetsTimeout = false
	w, err := d.Open(time.Second)
	require.NoError(t, err)
	require.Equal(t, time.Minute, w.Timeout())
}

func TestWhatFailsToOpenIsDisarmed(t *testing.T) {
	io := unix.EIO
	for name, c := range map[string]struct {
		spoil func(*watchdog.Driver)
		want  time.Duration
		is    error
		says  string
	}{
		"no such time-out": {func(*watchdog.Driver) {}, 1001 * time.Second, watchdog.ErrTimeout,
			`arm watchdog /dev/null: set time-out of 1001 s: time-out refused by the watchdog (driver "card", which has 1m0s)`},
		"time-out unknown":   {func(d *watchdog.Driver) { d.TimeoutErr = unix.EOPNOTSUPP }, time.Second, watchdog.ErrTimeout, "read time-out"},
		"time-out of zero":   {func(d *watchdog.Driver) { d.SetsTimeout, d.Seconds = false, 0 }, time.Second, watchdog.ErrTimeout, "found 0 s"},
		"no magic close":     {func(d *watchdog.Driver) { d.KnowsMagic = false }, time.Second, watchdog.ErrUnfit, "is killed"},
		"no keep-alive":      {func(d *watchdog.Driver) { d.KeepsAlive = false }, time.Second, watchdog.ErrUnfit, "WDIOC_KEEPALIVE"},
		"support unreadable": {func(d *watchdog.Driver) { d.SupportErr = io }, time.Second, io, "what its driver can do"},
		"feed fails":         {func(d *watchdog.Driver) { d.FeedErr = io }, time.Second, io, "feed it"},
	} {
		t.Run(name, func(t *testing.T) {
			d := watchdog.NewDriver()
			c.spoil(d)
			_, err := d.Open(c.want)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.NotErrorIs(t, err, watchdog.ErrStillArmed)
			require.False(t, d.Armed)
			require.False(t, d.IsOpen)
		})
	}
}

func TestWhatFailsToOpenAndHasNoWayOutSaysSo(t *testing.T) {
	d := watchdog.NewDriver()
	d.NoWayOut, d.FeedErr = true, unix.EIO
	_, err := d.Open(7 * time.Second)
	require.ErrorIs(t, err, unix.EIO)
	require.ErrorIs(t, err, watchdog.ErrStillArmed)
	require.ErrorContains(t, err, "reset in 7s")
	require.False(t, d.IsOpen)
}

func TestNoWayOutIsReported(t *testing.T) {
	d := watchdog.NewDriver()
	d.NoWayOut = true
	w, err := d.Open(9 * time.Second)
	require.NoError(t, err)
	err = w.Disarm()
	require.ErrorIs(t, err, watchdog.ErrStillArmed)
	require.ErrorContains(t, err, "disarm watchdog /dev/null: ")
	require.ErrorContains(t, err, "the host will be reset in 9s unless the watchdog is opened and fed again")
	require.True(t, d.Armed)
	require.ErrorIs(t, w.Feed(), watchdog.ErrClosed)
}

func TestFeedThatFailsSaysWhatFollows(t *testing.T) {
	d := watchdog.NewDriver()
	w, err := d.Open(9 * time.Second)
	require.NoError(t, err)
	d.FeedErr = unix.EIO
	require.ErrorIs(t, w.Feed(), unix.EIO)
	require.ErrorContains(t, w.Feed(), "reset 9s after it was last fed")
	d.FeedErr = nil
	require.NoError(t, w.Feed())
}

func TestLeftItStaysArmed(t *testing.T) {
	d := watchdog.NewDriver()
	w, err := d.Open(9 * time.Second)
	require.NoError(t, err)
	require.NoError(t, w.Leave())
	require.True(t, d.Armed)
	require.False(t, d.IsOpen)
}

// A program that stops a watchdog and then closes it with magic leaves the magic behind.
func TestMagicLeftBehindIsTakenBack(t *testing.T) {
	d := watchdog.NewDriver()
	d.Magic = true
	w, err := d.Open(9 * time.Second)
	require.NoError(t, err)
	require.NoError(t, w.Leave())
	require.True(t, d.Armed)
}

// A file that is not a watchdog is not written to, and not opened if its type shows that.
func TestNotAWatchdog(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo") // opening it would block
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for path, says := range map[string]string{
		fifo:                       "no character device",
		dir:                        "no character device",
		filepath.Join(dir, "none"): "modprobe softdog",
		os.DevNull:                 "inappropriate ioctl",
	} {
		_, err := watchdog.Open(path, time.Minute)
		require.ErrorIs(t, err, watchdog.ErrNotWatchdog, path)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, says)
	}
	d := watchdog.NewDriver()
	d.SupportErr = unix.ENOTTY
	_, err := d.Open(time.Minute)
	require.ErrorIs(t, err, watchdog.ErrNotWatchdog)
	require.False(t, d.Magic)
	require.False(t, d.IsOpen)
}

func TestTimeoutOutsideTheWholeRange(t *testing.T) {
	for _, want := range []time.Duration{-1, 0, 1<<63 - 1} {
		_, err := watchdog.Open("/nonexistent", want)
		require.ErrorIs(t, err, watchdog.ErrTimeout, want)
		require.False(t, errors.Is(err, watchdog.ErrNotWatchdog), "it is not even looked at")
	}
}
