package lockspace

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/singleflight"
)

// TestSurvey_PathHangs_IsReadOnce: each read of it occupies a thread until it returns.
func TestSurvey_PathHangs_IsReadOnce(t *testing.T) {
	var reads atomic.Int32
	never, group := make(chan struct{}), new(singleflight.Group)
	defer close(never)
	for range 5 {
		survey(group, []string{"hung"}, 10*time.Millisecond, func(string) finding { reads.Add(1); <-never; return finding{} })
	}
	require.EqualValues(t, 1, reads.Load())
}
