package client

import (
	"fmt"
	"testing"
	"time"
)

func TestRequests(t *testing.T) {
	asked := make(chan bool, 2)
	again := make(chan struct{})
	b := serve(t, func(x *exchange) {
		asked <- x.Requests
		x.Grant(time.Hour)
		if x.Nth == 1 {
			x.Ask(2, "db2", "reboot")
			x.Ask(4, "", "")
			<-again // the connection breaks
			return
		}
		x.Ask(2, "db2", "still")
		<-x.Gone
	})
	h := mustLock(t, b, Options{Requests: true})
	for _, want := range []Request{{2, "db2", "reboot"}, {4, "", ""}} {
		if got := receive(t, h); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	close(again)
	if got, want := receive(t, h), (Request{2, "db2", "still"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for range 2 {
		if !<-asked {
			t.Error("requests were not asked for")
		}
	}
	if h.Err() != nil || !open(h.Warned()) {
		t.Errorf("a request is no reason to stop: %v", h.Err())
	}
}

func TestRequestsThatNobodyReceives(t *testing.T) {
	sent := make(chan struct{})
	b := serve(t, func(x *exchange) {
		x.Grant(time.Hour)
		for n := range 3 * maxUnread {
			x.Ask(n, "", fmt.Sprint(n))
		}
		x.Renew(time.Minute)
		close(sent)
		<-x.Gone
	})
	h := mustLock(t, b, Options{Requests: true})
	wait(t, sent, "the requests")
	eventually(t, "the renewal after them", func() bool { return time.Until(h.Deadline()) <= time.Minute })
	for n := 2 * maxUnread; n < 3*maxUnread; n++ {
		if got := receive(t, h); got.Host != n {
			t.Fatalf("host %d, want %d: the newest are kept", got.Host, n)
		}
	}
}

func receive(t *testing.T, h *Hold) Request {
	t.Helper()
	select {
	case r := <-h.Requests():
		return r
	case <-time.After(soon):
		t.Fatalf("waited %v for a request", soon)
		return Request{}
	}
}
