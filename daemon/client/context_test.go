package client

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/test/clienttest"
)

func TestContextEndsWhenTheHolderIsToStop(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script func(x *exchange, lose <-chan struct{})
		lost   bool // by then
	}{
		{"warned", func(x *exchange, _ <-chan struct{}) {
			x.Grace = time.Hour - time.Second
			x.Grant(time.Hour)
			<-x.Gone
		}, false},
		{"lost", func(x *exchange, lose <-chan struct{}) {
			x.Grant(time.Hour)
			<-lose
			x.Lose("host 3 was evicted")
		}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lose := make(chan struct{})
			h := mustLock(t, serve(t, func(x *exchange) { test.script(x, lose) }), Options{})
			ctx, cancel := h.Context(t.Context())
			defer cancel()
			if ctx.Err() != nil {
				t.Fatal("ended at once")
			}
			close(lose)
			wait(t, ctx.Done(), "the end of the context")
			if open(h.Warned()) || open(h.Lost()) == test.lost {
				t.Errorf("warned %v, lost %v", !open(h.Warned()), !open(h.Lost()))
			}
			if cause := context.Cause(ctx); !errors.Is(cause, ErrLost) || test.lost && cause != h.Err() {
				t.Errorf("cause %v", cause)
			}
			late, cancelLate := h.Context(t.Context())
			defer cancelLate()
			if cause := context.Cause(late); !errors.Is(cause, ErrLost) {
				t.Errorf("cause of a context that comes too late: %v", cause)
			}
		})
	}
}

func TestContextEndsOtherwise(t *testing.T) {
	h := mustLock(t, serve(t, clienttest.Holding), Options{})
	mine := errors.New("mine")
	parent, endParent := context.WithCancelCause(t.Context())
	ofParent, cancel1 := h.Context(parent)
	defer cancel1()
	cancelled, cancel2 := h.Context(t.Context())
	ofUnlock, cancel3 := h.Context(t.Context())
	defer cancel3()

	endParent(mine)
	wait(t, ofParent.Done(), "the end with the parent")
	if cause := context.Cause(ofParent); cause != mine {
		t.Errorf("cause %v", cause)
	}
	cancel2()
	wait(t, cancelled.Done(), "the end by cancel")
	if ofUnlock.Err() != nil || !open(h.Warned()) {
		t.Error("others have ended too")
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	wait(t, ofUnlock.Done(), "the end with Unlock")
	if cause := context.Cause(ofUnlock); errors.Is(cause, ErrLost) || !errors.Is(cause, context.Canceled) {
		t.Errorf("cause %v, though nothing was lost", cause)
	}
}

// TestNothingIsLeft: no goroutine and no descriptor, however a hold ends.
func TestNothingIsLeft(t *testing.T) {
	b := clienttest.Serve(t, func(x *exchange) {
		switch x.Name {
		case "waits":
			x.Wait(1, time.Minute)
			<-x.Gone
		case "refused":
			x.Refuse("unavailable", "no", "")
		case "lost":
			x.Grant(time.Hour)
			x.Lose("evicted")
		default:
			clienttest.Holding(x)
		}
	})
	c := New(b.Socket)
	use := func() {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Lock(ctx, "waits", Options{OnWaiting: func(int, int) { cancel() }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("wait: %v", err)
		}
		if _, err := c.Lock(t.Context(), "refused", Options{}); err == nil {
			t.Error("not refused")
		}
		for _, name := range []string{"held", "lost"} {
			h, err := c.Lock(t.Context(), name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, _ := h.Context(context.Background()) // not cancelled: Unlock is enough
			if name == "lost" {
				wait(t, h.Lost(), "the loss")
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			wait(t, ctx.Done(), "the end of the context")
		}
	}
	descriptors := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(open)
	}
	use()
	b.AwaitRelease()
	goroutines, before := runtime.NumGoroutine(), descriptors()
	for range 20 {
		use()
	}
	b.AwaitRelease()
	eventually(t, "the end of what it has started", func() bool {
		return runtime.NumGoroutine() <= goroutines+2 && descriptors() <= before+2 // the fake's own vary by this
	})
}

func TestTimeoutThatIsOver(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	if _, err := New(b.Socket).Lock(t.Context(), "x", Options{Timeout: -1}); !errors.Is(err, ErrTimeout) {
		t.Errorf("%v, want ErrTimeout", err)
	}
	if b.Requests() != 0 {
		t.Error("asked for a lock")
	}
}

// TestUnlockAwaitsASuccessor: without an unlock, bakeryd's next process keeps the lock until the
// deadline.
func TestUnlockAwaitsASuccessor(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{})
	h.awaitLink(soon) // returns at once: there is a link
	b.Kill()
	away := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.away != nil
	}
	eventually(t, "the end of the connection", away)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		h.awaitLink(soon)
	}()
	b.Start(clienttest.Holding)
	wait(t, waited, "the successor")
	if away() || b.Requests() != 2 {
		t.Errorf("away %v after %d requests", away(), b.Requests())
	}
}
