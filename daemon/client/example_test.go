package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
)

// backup stands for work that needs the lock.
func backup(ctx context.Context) error {
	fmt.Println("making the backup")
	return ctx.Err()
}

// One host at a time makes the backup.
func Example() {
	c := client.New(socket()) // client.DefaultSocket, as a rule
	hold, err := c.Lock(context.Background(), "nightly-backup", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock()

	// ctx ends when the lock is about to be lost, while there is still time to stop.
	ctx, cancel := hold.Context(context.Background())
	defer cancel()
	if err := backup(ctx); err != nil {
		fmt.Println("the backup is not complete:", context.Cause(ctx))
	}
	// Output: making the backup
}

// Only one of several programs does the work; the others continue without waiting.
func ExampleClient_TryLock() {
	c := client.New(socket())
	hold, err := c.TryLock(context.Background(), "cleanup", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock()

	_, err = c.TryLock(context.Background(), "cleanup", client.Options{})
	if errors.Is(err, client.ErrBusy) {
		fmt.Println("another program cleans up")
	}
	_, err = c.TryLock(context.Background(), "cleanup", client.Options{Mode: client.Shared})
	fmt.Println("shared:", errors.Is(err, client.ErrBusy))
	// Output:
	// another program cleans up
	// shared: true
}

// Timeout limits the wait.
func ExampleClient_Lock() {
	c := client.New(socket())
	first, err := c.Lock(context.Background(), "deploy", client.Options{Command: "deploy production"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Lock(context.Background(), "deploy", client.Options{Timeout: 100 * time.Millisecond})
	fmt.Println("not in time:", errors.Is(err, client.ErrTimeout))

	// A context ends the wait as well, and frees the place in the queue.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Lock(ctx, "deploy", client.Options{})
	fmt.Println(err)

	if err := first.Unlock(); err != nil {
		fmt.Println(err)
	}
	second, err := c.Lock(context.Background(), "deploy", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Unlock()
	fmt.Println("held by", second.Name)
	// Output:
	// not in time: true
	// lock "deploy": context deadline exceeded
	// held by deploy
}

// OnWaiting shows the place in the queue.
func ExampleClient_Lock_queue() {
	c := client.New(socket())
	first, err := c.Lock(context.Background(), "queue", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var once sync.Once
	second, err := c.Lock(context.Background(), "queue", client.Options{OnWaiting: func(ahead, queued int) {
		once.Do(func() {
			fmt.Println("ahead:", ahead)
			_ = first.Unlock()
		})
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Unlock()
	fmt.Println("granted")
	// Output:
	// ahead: 1
	// granted
}

// Readers share a lock; a writer holds it alone.
func ExampleClient_Lock_shared() {
	c := client.New(socket())
	var readers []*client.Hold
	for range 3 {
		reader, err := c.Lock(context.Background(), "catalogue", client.Options{Mode: client.Shared})
		if err != nil {
			fmt.Println(err)
			return
		}
		readers = append(readers, reader)
	}
	fmt.Println("readers:", len(readers))
	_, err := c.TryLock(context.Background(), "catalogue", client.Options{})
	fmt.Println("a writer is refused:", errors.Is(err, client.ErrBusy))

	for _, reader := range readers {
		_ = reader.Unlock()
	}
	writer, err := c.Lock(context.Background(), "catalogue", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer writer.Unlock()
	fmt.Println("the writer is alone")
	// Output:
	// readers: 3
	// a writer is refused: true
	// the writer is alone
}

// A leader leads until its context ends: a sixth of the lease before another leader may start, or,
// as here, when an operator evicts its host.
func ExampleHold_Context() {
	c := client.New(socket())
	lead := func(ctx context.Context) {
		fmt.Println("leading")
		evict()
		<-ctx.Done()
	}
	hold, err := c.Lock(context.Background(), "leader", client.Options{Command: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := hold.Context(context.Background())
	defer cancel()
	lead(ctx)
	if errors.Is(context.Cause(ctx), client.ErrLost) {
		fmt.Println("stepping down")
	}
	_ = hold.Unlock() // a lost hold must be unlocked, too: another host may lead now
	// Output:
	// leading
	// stepping down
}

// store keeps what holders of a lock write, and refuses late writes.
type store struct {
	mu    sync.Mutex
	token client.Token // greatest one seen
	text  string
}

func (s *store) write(token client.Token, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errors.New("refused: the lock has had a later holder")
	}
	s.token, s.text = token, text
	return nil
}

// A token protects a store from a holder that was suspended beyond its lease and does not know yet
// that it lost the lock.
func ExampleHold_Token() {
	c := client.New(socket())
	var s store
	var tokens []client.Token
	for range 2 {
		hold, err := c.Lock(context.Background(), "store", client.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens = append(tokens, hold.Token())
		_ = hold.Unlock()
	}
	fmt.Println(s.write(tokens[0], "by the first"))
	fmt.Println(s.write(tokens[1], "by the second"))
	fmt.Println(s.write(tokens[0], "by the first, that was suspended"))
	fmt.Println(s.text)
	// Output:
	// <nil>
	// <nil>
	// refused: the lock has had a later holder
	// by the second
}

// A restart of bakeryd that takes less than a lease does not affect holders.
func ExampleHold_Lost() {
	c := client.New(socket())
	hold, err := c.Lock(context.Background(), "service", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock()
	restart()

	_, err = c.TryLock(context.Background(), "service", client.Options{})
	fmt.Println("busy:", errors.Is(err, client.ErrBusy))
	select {
	case <-hold.Lost():
		fmt.Println(hold.Err())
	default:
		fmt.Println("still held")
	}
	// Output:
	// busy: true
	// still held
}

// An Error says what is wrong with a request.
func ExampleError() {
	c := client.New(socket())
	_, err := c.Lock(context.Background(), "line\nbreak", client.Options{})
	var refusal *client.Error
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Code)
		fmt.Println(refusal.Message)
	}

	_, err = client.New("/nowhere.sock").Lock(context.Background(), "x", client.Options{})
	fmt.Println("unreachable:", errors.Is(err, client.ErrUnreachable))
	// Output:
	// invalid
	// invalid request: lock name "line\nbreak", want no control characters, found U+000A at byte 4: value not allowed
	// unreachable: true
}
