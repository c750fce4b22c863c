package bench

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestToyServer_Waiters_AreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &toyServer{queues: map[string][]chan struct{}{}}
		s.lock("a")
		s.lock("b")
		var order []int
		for i := range 3 {
			go func() { s.lock("a"); order = append(order, i) }()
			synctest.Wait()
		}
		for range 3 {
			s.unlock("a")
			synctest.Wait()
		}
		require.Equal(t, []int{0, 1, 2}, order)
	})
}

func TestToy_SeveralClients_OneHasTheLock(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "toy")
	stdin, end := io.Pipe()
	serves := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- ServeToy(socket, stdin, closer(serves)) }()
	<-serves

	c := &toyClient{socket: socket}
	var inside atomic.Int32
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 100 {
				_, unlock, err := c.lock(t.Context())
				if err != nil || inside.Add(1) != 1 {
					t.Errorf("two clients have the lock, or %v", err)
				}
				inside.Add(-1)
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	require.LessOrEqual(t, len(c.idle), 4, "connections are reused")

	require.NoError(t, end.Close())
	require.NoError(t, <-ended)
	c.idle = nil
	_, _, err := c.lock(t.Context())
	require.Error(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(bytes.ErrTooLarge)
	_, _, err = c.lock(ctx)
	require.ErrorIs(t, err, bytes.ErrTooLarge)
}

// closer is closed at the first write.
type closer chan struct{}

func (c closer) Write(b []byte) (int, error) { close(c); return len(b), nil }
