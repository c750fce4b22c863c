package client

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/test/clienttest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// missed waits until a client has looked for a bakeryd that is gone.
func missed(t *testing.T, b *clienttest.Bakeryd) {
	_ = os.Remove(b.Socket)
	l, err := net.Listen("unix", b.Socket)
	if !assert.NoError(t, err) {
		return
	}
	defer l.Close()
	if c, err := l.Accept(); assert.NoError(t, err) {
		c.Close()
	}
}

func TestWaitOutlivesBakeryd(t *testing.T) {
	var sessions []string
	var timeouts []int64
	const limit = time.Hour
	script := func(x *exchange) {
		sessions, timeouts = append(sessions, x.Session), append(timeouts, x.TimeoutMS)
		if x.Token != 0 {
			t.Errorf("a waiter has no token, got %v", x.Token)
		}
		switch x.Nth {
		case 1, 4:
			x.Wait(1, time.Minute)
			<-x.Gone
		case 2:
			x.Refuse(api.CodeUnavailable, "joining", "")
		case 3: // the connection breaks
		case 5:
			clienttest.Holding(x)
		}
	}
	b := clienttest.Serve(t, script)
	told := make(chan struct{}, 10)
	var h *Hold
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		h, err = New(b.Socket).Lock(t.Context(), "x", Options{Timeout: limit, OnWaiting: func(int, int) { told <- struct{}{} }})
	}()
	for range 2 {
		wait(t, told, "the wait")
		b.Kill()
		missed(t, b)
		b.Start(script)
	}
	wait(t, done, "the grant")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Unlock() }()
	for i, session := range sessions {
		if session != sessions[0] {
			t.Errorf("request %d is of another session", i+1)
		}
		if i > 0 && (timeouts[i] >= timeouts[0] || timeouts[i] <= 0) {
			t.Errorf("request %d waits %d ms, the first one %d ms", i+1, timeouts[i], timeouts[0])
		}
	}
	if len(sessions) != 5 {
		t.Errorf("%d requests, want 5", len(sessions))
	}
}

// TestWaiter_UnconfirmedGrant_ContinuesToWait for its remaining time, even while bakeryd still
// handles the grant.
func TestWaiter_UnconfirmedGrant_ContinuesToWait(t *testing.T) {
	t.Parallel()
	timeouts := make(chan int64, 3)
	b := clienttest.Serve(t, func(x *exchange) {
		timeouts <- x.TimeoutMS
		switch x.Nth {
		case 1:
			x.Wait(1, time.Minute)
			x.Refuse(api.CodeUnconfirmed, "the grant was not confirmed in time", "")
		case 2:
			x.Refuse(api.CodeUnavailable, "the session is about to end", "")
		default:
			clienttest.Holding(x)
		}
	})
	const limit = time.Hour
	h, err := New(b.Socket).Lock(t.Context(), "x", Options{Timeout: limit, Confirm: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Unlock() }()
	for n := 1; n <= 3; n++ {
		if ms := <-timeouts; (ms < limit.Milliseconds()) != (n > 1) {
			t.Errorf("request %d waits %d ms", n, ms)
		}
	}
}

func TestWaitEndsWithoutBakeryd(t *testing.T) {
	t.Parallel()
	lease := standstill.Outlives(time.Second)
	for _, test := range []struct {
		name   string
		o      Options
		answer clienttest.Script // of the restarted bakeryd; nil: it does not restart
		want   error
	}{
		{"gone for longer than the lease", Options{}, nil, ErrUnreachable},
		{"silent for longer than the lease", Options{}, func(x *exchange) { <-x.Gone }, ErrUnreachable},
		{"out of time", Options{Timeout: lease / 2}, nil, ErrTimeout},
		{"out of time while a bakeryd answers", Options{Timeout: lease / 2}, func(x *exchange) { <-x.Gone }, ErrTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			waiting := make(chan struct{})
			b := clienttest.Serve(t, func(x *exchange) {
				x.Wait(1, lease)
				close(waiting)
				<-x.Gone
			})
			go func() {
				<-waiting
				b.Kill()
				if test.answer != nil {
					b.Start(test.answer)
				}
			}()
			begun := time.Now()
			if _, err := New(b.Socket).Lock(t.Context(), "x", test.o); !errors.Is(err, test.want) {
				t.Errorf("error %v after %v, want %v", err, time.Since(begun), test.want)
			}
		})
	}
}

func TestRefusalWhileItIsWaitedForBakeryd(t *testing.T) {
	waiting := make(chan struct{})
	b := clienttest.Serve(t, func(x *exchange) {
		x.Wait(1, time.Hour)
		close(waiting)
		<-x.Gone
	})
	go func() {
		<-waiting
		b.Kill()
		b.Start(func(x *exchange) { x.Refuse(api.CodePermits, "has 2 permits", "") })
	}()
	var refusal *Error
	if _, err := New(b.Socket).Lock(t.Context(), "x", Options{}); !errors.As(err, &refusal) || refusal.Code != api.CodePermits {
		t.Errorf("error %v, want the refusal", err)
	}
}

func TestNonBlockIsAskedAgain(t *testing.T) {
	b := clienttest.Serve(t, func(x *exchange) {
		if x.Nth > 2 {
			x.Send(`{"event":"refused","code":"busy"}`)
		}
	})
	if _, err := New(b.Socket).Lock(t.Context(), "x", Options{NonBlock: true}); !errors.Is(err, ErrBusy) || b.Requests() != 3 {
		t.Errorf("error %v after %d requests, want ErrBusy after 3", err, b.Requests())
	}
}

func TestCancelWhileBakerydIsGone(t *testing.T) {
	waiting := make(chan struct{})
	b := clienttest.Serve(t, func(x *exchange) {
		x.Wait(1, time.Hour)
		close(waiting)
		<-x.Gone
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	go func() {
		<-waiting
		b.Kill()
		missed(t, b)
		cancel(why)
	}()
	if _, err := New(b.Socket).Lock(ctx, "x", Options{}); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}
