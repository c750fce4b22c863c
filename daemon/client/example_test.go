package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

// backup stands for what may only be done under the lock.
func backup(ctx context.Context) error {
	fmt.Println("making the backup")
	return ctx.Err()
}

// Only one of the hosts makes the backup at a time, and the next one after it.
func Example() {
	c := client.New(socket()) // client.DefaultSocket, as a rule
	hold, err := c.Lock(context.Background(), "nightly-backup", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock()

	// It ends when the lock is about to be lost, while there is still time to stop.
	ctx, cancel := hold.Context(context.Background())
	defer cancel()
	if err := backup(ctx); err != nil {
		fmt.Println("the backup is not complete:", context.Cause(ctx))
	}
	// Output: making the backup
}

// Who does not want to wait, or not for long, is told by an error.
func ExampleClient_Lock() {
	c := client.New(socket())
	first, err := c.Lock(context.Background(), "deploy", client.Options{Command: "deploy production"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Lock(context.Background(), "deploy", client.Options{NonBlock: true})
	fmt.Println("busy:", errors.Is(err, client.ErrBusy))
	_, err = c.Lock(context.Background(), "deploy", client.Options{Timeout: 100 * time.Millisecond})
	fmt.Println("not in time:", errors.Is(err, client.ErrTimeout))

	// A context ends the wait as well, and gives the place in the queue to who comes next.
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
	// busy: true
	// not in time: true
	// lock "deploy": context deadline exceeded
	// held by deploy
}

// Those who wait can be told how far they are.
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

// Readers hold a lock together, writers alone.
func ExampleClient_Lock_shared() {
	c := client.New(socket())
	var readers []*client.Hold
	for range 3 {
		reader, err := c.Lock(context.Background(), "catalogue", client.Options{Mode: layout.Shared})
		if err != nil {
			fmt.Println(err)
			return
		}
		readers = append(readers, reader)
	}
	fmt.Println("readers:", len(readers))
	_, err := c.Lock(context.Background(), "catalogue", client.Options{NonBlock: true})
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

// A leader leads for as long as its context lasts. It is told to stop a sixth of the lease before another one may
// lead; here an operator wants its host to leave.
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
	_ = hold.Unlock() // what is lost is to be unlocked as well: now nobody leads here any more
	// Output:
	// leading
	// stepping down
}

// store keeps what holders of a lock write, and refuses what is late.
type store struct {
	mu    sync.Mutex
	token layout.Ticket // the greatest one it has seen
	text  string
}

func (s *store) write(token layout.Ticket, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errors.New("refused: the lock has been another one's since")
	}
	s.token, s.text = token, text
	return nil
}

// A token makes a store safe even from a holder that was suspended for longer than its lease, and does not know yet
// that it has lost the lock.
func ExampleHold_Token() {
	c := client.New(socket())
	var s store
	var tokens []layout.Ticket
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
	// refused: the lock has been another one's since
	// by the second
}

// A restart of bakeryd is nothing that a holder has to care for, if it takes less than a lease.
func ExampleHold_Lost() {
	c := client.New(socket())
	hold, err := c.Lock(context.Background(), "service", client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock()
	restart()

	_, err = c.Lock(context.Background(), "service", client.Options{NonBlock: true})
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

// bakeryd says what is wrong with a request, and what to do about it.
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
