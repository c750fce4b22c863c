package locks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestQueue_Grant_TellsNoMoreThanTheNearest: the work of one grant does not grow with the number of
// waiters.
func TestQueue_Grant_TellsNoMoreThanTheNearest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newCluster(t, 8, 4).host(1)
		h := acquire(t, d, Request{Name: "x"})
		lk := h.lk
		told := 0
		for range 1000 {
			_, err := lk.enqueue(Request{Name: "x", OnWaiting: func(int, int) { told++ }})
			require.NoError(t, err)
		}
		lk.mu.Lock()
		lk.told.far = time.Now().Add(time.Hour) // not due yet
		lk.told.last = lk.queue[len(lk.queue)-1].nth
		told = 0
		lk.mu.Unlock()
		lk.tell(1)
		lk.mu.Lock()
		require.Equal(t, nearest, told)
		lk.mu.Unlock()
		lk.retell.Store(true)
		lk.tell(2)
		lk.mu.Lock()
		require.Equal(t, nearest+1000, told, "all are notified in the end")
		lk.mu.Unlock()
		lk.refuse(errStopped, everybody)
		require.NoError(t, h.Release())
	})
}
