package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clienttest"
	"github.com/bakeryd/bakeryd/test/standstill"
)

// eventually polls for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for bound := time.Now().Add(soon); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(bound) {
			t.Fatalf("waited %v for %s", soon, what)
		}
	}
}

func TestHoldOutlivesBakeryd(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	renewing := func(x *exchange) { x.Hold(lease) }
	var first, again clienttest.Request
	b := clienttest.Serve(t, func(x *exchange) { first = x.Request; renewing(x) })
	h := mustLock(t, b.Socket, Options{Mode: Shared})
	for range 2 {
		before, deadline := b.Requests(), h.Deadline()
		b.Kill()
		b.Start(func(x *exchange) { again = x.Request; renewing(x) })
		eventually(t, "the client to come back", func() bool { return b.Requests() > before })
		eventually(t, "a deadline that the predecessor could not tell", func() bool { return h.Deadline().After(deadline.Add(lease)) })
		if h.Err() != nil || !open(h.Warned()) {
			t.Fatalf("lost though bakeryd came back: %v", h.Err())
		}
		if again.Session != first.Session || again.Token != token || again.Name != "x" || again.Mode != layout.Shared {
			t.Errorf("asked again by %+v, at first by %+v", again, first)
		}
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	b.AwaitRelease()
}

func TestHoldEndsWithTheLeaseIfBakerydStaysAway(t *testing.T) {
	t.Parallel()
	grace := standstill.Outlives(time.Second)
	lease := grace + standstill.Outlives(5*time.Second)
	for name, after := range map[string]func(b *clienttest.Bakeryd){
		"gone":   func(*clienttest.Bakeryd) {},
		"silent": func(b *clienttest.Bakeryd) { b.Start(func(x *exchange) { <-x.Gone }) },
		"unavailable": func(b *clienttest.Bakeryd) {
			b.Start(func(x *exchange) { x.Refuse(api.CodeUnavailable, "joining", "") })
		},
		"breaks again": func(b *clienttest.Bakeryd) { b.Start(func(x *exchange) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := clienttest.Serve(t, func(x *exchange) { x.Grace = grace; x.Grant(lease); <-x.Gone })
			begun := time.Now()
			h := mustLock(t, b.Socket, Options{})
			b.Kill()
			after(b)
			select {
			case <-h.Silent():
			case <-time.After(soon):
				t.Fatal("Silent did not report that bakeryd is gone")
			}
			if !open(h.Warned()) {
				t.Error("warned before Silent reported that bakeryd is gone")
			}
			wait(t, h.Warned(), "the warning")
			if !open(h.Lost()) {
				t.Error("lost with the warning")
			}
			if left := time.Until(h.Deadline()); left > grace {
				t.Errorf("warned with %v left, want %v", left, grace)
			}
			wait(t, h.Lost(), "the loss")
			if held := time.Since(begun); held < lease-time.Millisecond { // the rounding of events
				t.Errorf("lost after %v, want %v", held, lease)
			}
			if err := h.Err(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "without a renewal") {
				t.Errorf("Err %v", err)
			}
		})
	}
}

func TestHoldEndsWithADefiniteAnswer(t *testing.T) {
	granted := func(x *exchange, name, token string) {
		x.Send(`{"event":"granted","name":%q,"mode":"exclusive","token":%q,"host":3,"lease_ms":60000}`, name, token)
		<-x.Gone
	}
	for _, test := range []struct {
		name   string
		answer clienttest.Script
		reason string
	}{
		{"over", func(x *exchange) { x.Refuse(api.CodeLost, "no such hold", "") }, "no such hold"},
		{"over, in the stream", func(x *exchange) { x.Send(`{"event":"refused","code":"lost","message":"no such hold"}`) }, "no such hold"},
		{"lost meanwhile", func(x *exchange) { x.Lose("host 1 was evicted") }, "host 1 was evicted"},
		{"another error", func(x *exchange) { x.Refuse(api.CodeInvalid, "what?", "") }, "what?"},
		{"another token", func(x *exchange) { granted(x, "x", (token + 1).String()) }, "granted token"},
		{"another lock", func(x *exchange) { granted(x, "y", token.String()) }, "granted \"y\""},
		{"no answer of bakeryd", func(x *exchange) { x.Send("hello") }, "not an answer of bakeryd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := clienttest.Serve(t, clienttest.Holding)
			h := mustLock(t, b.Socket, Options{})
			b.Kill()
			b.Start(test.answer)
			wait(t, h.Lost(), "the loss")
			wait(t, h.Warned(), "the warning that comes with it")
			if err := h.Err(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("Err %v, want ErrLost because of %q", err, test.reason)
			}
		})
	}
}

func TestHoldIsAskedForAgainUntilThereIsAnAnswer(t *testing.T) {
	t.Parallel()
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{})
	b.Kill()
	b.Start(func(x *exchange) {
		switch x.Nth {
		case 2:
			x.Refuse(api.CodeUnavailable, "joining", "")
		case 3: // the connection breaks
		case 4:
			x.Wait(1, time.Minute) // no answer to the request
			x.Grant(time.Minute)
			<-x.Gone
		}
	})
	eventually(t, "the fourth request", func() bool { return b.Requests() == 4 })
	eventually(t, "the grant", func() bool { return time.Until(h.Deadline()) <= time.Minute })
	if h.Err() != nil || b.Requests() != 4 {
		t.Errorf("after %d requests: %v", b.Requests(), h.Err())
	}
}

func TestUnlockWithoutBakeryd(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{Witness: true})
	b.Kill()
	if err := h.Unlock(); err != nil || h.Err() != nil || !open(h.Lost()) || !open(h.Warned()) {
		t.Errorf("Unlock: %v; Err: %v", err, h.Err())
	}
	if b.Witnessed() {
		t.Error("the FIFO is open after Unlock")
	}
}

// TestHold_ProcessWasPaused_AsksAgain resumes after a pause of the process.
func TestHold_ProcessWasPaused_AsksAgain(t *testing.T) {
	firstGone := make(chan struct{})
	answered := make(chan bool, 1)
	b := clienttest.Serve(t, func(x *exchange) {
		if x.Nth == 1 {
			x.Grant(time.Hour)
			<-x.Gone
			close(firstGone)
			return
		}
		answered <- open(firstGone)
		x.Grant(time.Minute)
		<-x.Gone
	})
	h := mustLock(t, b.Socket, Options{})
	h.refresh()
	if before := <-answered; !before {
		t.Error("the first connection was closed before the second was answered: bakeryd may release the lock")
	}
	wait(t, firstGone, "the first connection to be closed")
	eventually(t, "the deadline as last sent", func() bool { return time.Until(h.Deadline()) <= time.Minute })
	if h.Err() != nil {
		t.Error(h.Err())
	}
}

func TestStaleEventsCountFromWhenTheyWereSent(t *testing.T) {
	now := clock.Boottime.Now()
	s := link{asked: now - time.Minute}
	ago := func(d time.Duration) int64 { return (now - d).Milliseconds() }
	const lease = 10 * time.Second
	for _, test := range []struct {
		name string
		at   int64
		want time.Duration // from now
	}{
		{"just sent", ago(0), lease},
		{"sent a while ago", ago(4 * time.Second), lease - 4*time.Second},
		{"of no use any more", ago(40 * time.Second), lease - 40*time.Second},
		{"not told", 0, lease},
		{"sent before it was asked for", ago(2 * time.Minute), lease},
		{"sent in the future", ago(-time.Hour), lease},
	} {
		got := s.until(clock.Boottime.Now(), api.Event{AtMS: test.at, LeaseMS: lease.Milliseconds()}) - now
		if diff := got - test.want; diff < -time.Millisecond || diff > time.Second {
			t.Errorf("%s: deadline in %v, want %v", test.name, got, test.want)
		}
	}
}

func TestWarningStands(t *testing.T) {
	t.Parallel()
	lease, warned := standstill.Lease, make(chan struct{})
	h := mustLock(t, serve(t, func(x *exchange) {
		x.Grace = lease * 7 / 10
		x.Grant(lease)
		<-warned
		x.Renew(time.Hour)
		<-x.Gone
	}), Options{})
	wait(t, h.Warned(), "the warning")
	deadline := h.Deadline()
	close(warned)
	eventually(t, "the renewal", func() bool { return time.Until(h.Deadline()) > time.Minute })
	eventually(t, "the end of the lease as first sent", func() bool { return time.Now().After(deadline) })
	if open(h.Warned()) || h.Err() != nil {
		t.Errorf("warned: %v; %v", !open(h.Warned()), h.Err())
	}
}
