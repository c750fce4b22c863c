package watchdogtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/watchdog"
)

// rig returns a watchdog that was armed for 10 s at 100 s.
func rig(t *testing.T) (h *Hardware, d watchdog.Device, now *time.Duration) {
	now = new(time.Duration)
	*now = 100 * time.Second
	h = New(func() time.Duration { return *now })
	d, err := h.Open("fake", 10*time.Second)
	require.NoError(t, err)
	return h, d, now
}

func TestUnfedItResets(t *testing.T) {
	for name, end := range map[string]func(watchdog.Device) error{
		"open":   func(watchdog.Device) error { return nil },
		"left":   watchdog.Device.Leave,
		"closed": func(d watchdog.Device) error { _ = d.Leave(); _ = d.Disarm(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			h, d, now := rig(t)
			*now += 5 * time.Second
			require.NoError(t, d.Feed())
			require.NoError(t, end(d))
			*now += 10*time.Second - 1
			_, reset := h.Reset()
			require.False(t, reset)
			*now += time.Second
			at, reset := h.Reset()
			require.True(t, reset)
			require.Equal(t, 115*time.Second, at)
			require.False(t, h.Armed())
			require.Equal(t, []time.Duration{100 * time.Second, 105 * time.Second}, h.Feeds())
			require.Error(t, d.Feed(), "nothing runs on a host that was reset")
		})
	}
}

func TestDisarmedItDoesNotReset(t *testing.T) {
	h, d, now := rig(t)
	require.NoError(t, d.Disarm())
	*now += time.Hour
	_, reset := h.Reset()
	require.False(t, reset)
}
