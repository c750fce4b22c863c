package clock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBoottime_Spin_TakesAThreadEach(t *testing.T) {
	require.True(t, Boottime.Spin(50*time.Microsecond))
	spinning.Add(maxSpinners)
	require.False(t, Boottime.Spin(50*time.Microsecond))
	spinning.Add(-maxSpinners)
}
