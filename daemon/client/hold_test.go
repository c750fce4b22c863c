package client

import (
	"errors"
	"math"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/standstill"
)

func TestLost(t *testing.T) {
	tests := []struct {
		name   string
		lease  time.Duration
		script func(x *exchange)
		reason string
	}{
		{"told so", time.Minute, func(x *exchange) {
			x.Send(`{"event":"lost","message":"host 1 was evicted"}`)
			<-x.Gone
		}, "host 1 was evicted"},
		{"garbage", time.Minute, func(x *exchange) { x.Send("garbage"); <-x.Gone }, "garbage"},
		{"no renewal", 50 * time.Millisecond, func(x *exchange) { <-x.Gone }, "without a renewal"},
		{"no lease", 0, func(x *exchange) { <-x.Gone }, "without a renewal"},
		{"renewal that shortens", time.Minute, func(x *exchange) {
			x.Send(`{"event":"renewed","lease_ms":-5}`)
			<-x.Gone
		}, "without a renewal"},
		{"no renewal while other events come", 50 * time.Millisecond, func(x *exchange) {
			for open(x.Gone) {
				x.Send(`{"event":"weather"}`)
			}
		}, "without a renewal"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := mustLock(t, serve(t, func(x *exchange) {
				x.Grant(test.lease)
				test.script(x)
			}), Options{})
			wait(t, h.Lost(), "the loss")
			if err := h.Err(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("Err %v, want ErrLost because of %q", err, test.reason)
			}
			if err := h.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}

func TestRenewalMovesTheDeadline(t *testing.T) {
	t.Parallel()
	lease := standstill.Lease
	h := mustLock(t, serve(t, func(x *exchange) {
		x.Grant(lease)
		x.Send(`{"event":"renewed","lease_ms":60000}`)
		x.Send(`{"event":"renewed","lease_ms":%d}`, int64(math.MaxInt64))
		<-x.Gone
	}), Options{})
	end := time.Now().Add(lease)
	eventually(t, "the end of the lease as first sent", func() bool { return time.Now().After(end) })
	if h.Err() != nil {
		t.Fatalf("lost though renewed: %v", h.Err())
	}
	if left := time.Until(h.Deadline()); left > layout.MaxLease || left < layout.MaxLease-soon {
		t.Errorf("deadline in %v, want in %v, the longest lease", left, layout.MaxLease)
	}
}

func TestExpiryIsFinal(t *testing.T) {
	lost := make(chan struct{})
	h := mustLock(t, serve(t, func(x *exchange) {
		x.Grant(20 * time.Millisecond)
		<-lost
		x.Send(`{"event":"renewed","lease_ms":60000}`)
		<-x.Gone
	}), Options{})
	wait(t, h.Lost(), "the deadline")
	close(lost)
	h.renew(clock.Boottime.Now() + time.Hour)
	if time.Until(h.Deadline()) > 0 || !errors.Is(h.Err(), ErrLost) {
		t.Errorf("deadline in %v, Err %v: revived", time.Until(h.Deadline()), h.Err())
	}
}

func TestUnlockIsNoLoss(t *testing.T) {
	gone := make(chan struct{})
	h := mustLock(t, serve(t, func(x *exchange) {
		x.Grant(time.Minute)
		<-x.Gone
		close(gone)
	}), Options{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := h.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
	all.Wait()
	if h.Err() != nil || !open(h.Lost()) {
		t.Errorf("let go, yet lost: %v", h.Err())
	}
	wait(t, gone, "the server to see the release")
}

func TestInheritedDescriptorKeepsTheLock(t *testing.T) {
	gone := make(chan struct{})
	h := mustLock(t, serve(t, func(x *exchange) {
		x.Grant(time.Minute)
		<-x.Gone
		close(gone)
	}), Options{})
	d, err := h.Inherit()
	if err != nil {
		t.Fatal(err)
	}
	if d < firstInherited {
		t.Errorf("descriptor %d, want at least %d", d, firstInherited)
	}
	if flags, err := unix.FcntlInt(uintptr(d), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		t.Errorf("descriptor flags %#x, %v: not inherited", flags, err)
	}
	holder := exec.Command("cat")
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if !open(gone) {
		t.Error("released though the command has the descriptor")
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	wait(t, gone, "the release after the command")
}
