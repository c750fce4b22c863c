package tasks

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTasksBeginWhileWaited: with a sync.WaitGroup that is a race, and may panic. Two goroutines
// wait at once.
func TestTasksBeginWhileWaited(t *testing.T) {
	for range 1000 {
		var (
			ts     Group
			before atomic.Int32
			wg     sync.WaitGroup
		)
		for range 4 {
			ts.Go(func() { before.Add(1) })
		}
		wg.Go(func() { ts.Go(func() {}) })
		for range 2 {
			wg.Go(func() {
				ts.Wait()
				if n := before.Load(); n != 4 {
					t.Errorf("%d of 4 have ended", n)
				}
			})
		}
		wg.Wait()
		ts.Wait()
		require.Zero(t, ts.n)
	}
}

// TestTasksOfTasks: these are waited for, too.
func TestTasksOfTasks(t *testing.T) {
	var ts Group
	ended, more := false, make(chan struct{})
	ts.Go(func() {
		<-more
		ts.Go(func() { ended = true })
	})
	go close(more)
	ts.Wait()
	require.True(t, ended)
}
