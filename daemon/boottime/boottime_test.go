package boottime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAlarmRingsAtItsMoment(t *testing.T) {
	a, err := NewAlarm()
	require.NoError(t, err)
	defer a.Close()
	at := Now() + 20*time.Millisecond
	require.NoError(t, a.Set(at))
	require.NoError(t, a.Wait())
	require.GreaterOrEqual(t, Now(), at)
}

func TestAlarmThatIsSetToThePastRingsAtOnce(t *testing.T) {
	a, err := NewAlarm()
	require.NoError(t, err)
	defer a.Close()
	for _, at := range []time.Duration{-time.Second, 0, Now() - time.Second} {
		require.NoError(t, a.Set(at))
		require.NoError(t, a.Wait())
	}
}

func TestAlarmIsMovedWhileItIsWaitedFor(t *testing.T) {
	a, err := NewAlarm()
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, a.Set(Now()+time.Hour))
	rang := make(chan error, 1)
	go func() { rang <- a.Wait() }()
	require.NoError(t, a.Set(Now()+time.Millisecond))
	require.NoError(t, <-rang)
}

func TestClosedAlarmEndsTheWait(t *testing.T) {
	a, err := NewAlarm()
	require.NoError(t, err)
	require.NoError(t, a.Set(Now()+time.Hour))
	ended := make(chan error, 1)
	go func() { ended <- a.Wait() }()
	a.Close()
	require.Error(t, <-ended)
	require.Error(t, a.Set(0))
}
