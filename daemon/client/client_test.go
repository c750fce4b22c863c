package client

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

func TestLockSendsWhatIsWanted(t *testing.T) {
	got := make(chan clienttest.Request, 1)
	socket := serve(t, func(x *exchange) {
		got <- x.Request
		x.Grant(time.Minute)
		<-x.Gone
	})
	h := mustLock(t, socket, Options{
		Mode: Shared, NonBlock: true, Timeout: 1500*time.Microsecond + 1, Permits: 3, PID: 17,
		Command: "backup\n--all", NoLinger: true,
	})
	want := clienttest.Request{Name: "x", Mode: layout.Shared, NonBlock: true, TimeoutMS: 2, Permits: 3, PID: 17, Command: "backup?--all", NoLinger: true}
	g := <-got
	if session, err := hex.DecodeString(g.Session); err != nil || len(session) != 16 {
		t.Errorf("session %q, want 32 hex digits", g.Session)
	}
	g.Session = ""
	if g != want {
		t.Errorf("request %+v, want %+v", g, want)
	}
	if h.Name != "x" || h.Mode() != Shared || h.Token() != Token(token) || h.HostID() != clienttest.HostID {
		t.Errorf("hold of %q %v, token %v, host %d", h.Name, h.Mode(), h.Token(), h.HostID())
	}
	if left := time.Until(h.Deadline()); left > time.Minute || left < time.Minute-soon {
		t.Errorf("deadline in %v, want in a minute at most", left)
	}
	if h.Err() != nil || !open(h.Lost()) {
		t.Errorf("lost at once: %v", h.Err())
	}
}

func TestTryLock_OfAnyOptions_DoesNotWait(t *testing.T) {
	got := make(chan clienttest.Request, 1)
	socket := serve(t, func(x *exchange) {
		got <- x.Request
		x.Refuse(api.CodeBusy, "held", "")
	})
	_, err := New(socket).TryLock(t.Context(), "x", Options{Mode: Shared, Timeout: -time.Second, Permits: 3})
	if !errors.Is(err, ErrBusy) {
		t.Errorf("error %v, want ErrBusy", err)
	}
	if g := <-got; !g.NonBlock || g.TimeoutMS != 0 || g.Mode != layout.Shared || g.Permits != 3 {
		t.Errorf("request %+v, want one that does not wait", g)
	}
}

func TestLockTellsOfTheWait(t *testing.T) {
	socket := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":2,"queued":1}`)
		x.Send(`{"event":"weather","ahead":"rain","mode":7}`)
		x.Send("")
		x.Send(`{"event":"waiting","ahead":-1,"queued":0}`)
		x.Grant(time.Minute)
		<-x.Gone
	})
	var told [][2]int
	mustLock(t, socket, Options{OnWaiting: func(ahead, queued int) { told = append(told, [2]int{ahead, queued}) }})
	if want := [][2]int{{2, 1}, {0, 0}}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestLock_GrantNotConfirmedInTime_AsksAgain for the remaining time, again with Confirm.
func TestLock_GrantNotConfirmedInTime_AsksAgain(t *testing.T) {
	asked := make(chan clienttest.Request, 2)
	socket := serve(t, func(x *exchange) {
		asked <- x.Request
		if x.Nth == 1 {
			time.Sleep(10 * time.Millisecond) // part of its time
			x.Refuse(api.CodeUnconfirmed, "passed on", "")
			return
		}
		x.Grant(time.Minute)
		<-x.Confirmed
		<-x.Gone
	})
	h := mustLock(t, socket, Options{Confirm: true, Timeout: time.Hour})
	first, second := <-asked, <-asked
	if !first.Confirm || !second.Confirm || second.TimeoutMS >= first.TimeoutMS || first.Session != second.Session {
		t.Errorf("asked %+v, then %+v", first, second)
	}
	if h.Token() != Token(token) {
		t.Errorf("token %v", h.Token())
	}
}

func TestClient_WarnedWhileItWaits_CallsOnWarning(t *testing.T) {
	socket := serve(t, func(x *exchange) {
		x.Wait(1, time.Minute)
		x.Send(`{"event":"warning","message":"process 5 holds it"}`)
		x.Grant(time.Minute)
		<-x.Gone
	})
	var waits, warnings []string
	mustLock(t, socket, Options{
		OnWaiting: func(ahead, _ int) { waits = append(waits, strconv.Itoa(ahead)) },
		OnWarning: func(message string) { warnings = append(warnings, message) },
	})
	if want := []string{"process 5 holds it"}; !reflect.DeepEqual(warnings, want) {
		t.Errorf("warnings %q, want %q", warnings, want)
	}
	if want := []string{"1"}; !reflect.DeepEqual(waits, want) {
		t.Errorf("places %q, want %q: a warning has no place", waits, want)
	}
	mustLock(t, socket, Options{}) // has no OnWarning
}

func TestLockRefused(t *testing.T) {
	tests := []struct {
		name   string
		script func(x *exchange)
		is     error
		want   *Error
	}{
		{"busy", func(x *exchange) { x.Send(`{"event":"refused","code":"busy","message":"held by host 2"}`) },
			ErrBusy, &Error{Code: api.CodeBusy, Message: "held by host 2"}},
		{"timeout", func(x *exchange) { x.Send(`{"event":"refused","code":"timeout"}`) },
			ErrTimeout, &Error{Code: api.CodeTimeout}},
		{"unavailable while waiting", func(x *exchange) {
			x.Send(`{"event":"waiting","ahead":1,"queued":1}`)
			x.Send(`{"event":"refused","code":"unavailable","message":"lease lost","hint":"wait"}`)
		}, nil, &Error{Code: api.CodeUnavailable, Message: "lease lost", Hint: "wait"}},
		{"before waiting", func(x *exchange) { x.Refuse("full", "lock directory is full", "remove a lock") },
			nil, &Error{Code: api.CodeFull, Message: "lock directory is full", Hint: "remove a lock"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(serve(t, test.script)).Lock(t.Context(), "x", Options{})
			var refusal *Error
			if !errors.As(err, &refusal) || *refusal != *test.want {
				t.Fatalf("error %v, want %+v", err, test.want)
			}
			for _, sentinel := range []error{ErrBusy, ErrTimeout, ErrUnreachable, ErrLost} {
				if got, want := errors.Is(err, sentinel), sentinel == test.is; got != want {
					t.Errorf("Is(%v, %v) = %v, want %v", err, sentinel, got, want)
				}
			}
		})
	}
}

func TestLockUnreachable(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none")
	refused := filepath.Join(t.TempDir(), "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: refused, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	silent := serveRaw(t, func(net.Conn) {})
	for _, socket := range []string{missing, refused, silent, strings.Repeat("x", 200)} {
		if _, err := New(socket).Lock(t.Context(), "x", Options{}); !errors.Is(err, ErrUnreachable) {
			t.Errorf("socket %.20s: %v, want ErrUnreachable", filepath.Base(socket), err)
		}
	}
}

const ok = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"

func TestLockSurvivesABrokenServer(t *testing.T) {
	t.Parallel()
	granted := `{"event":"granted","name":"x","mode":"exclusive","token":"` + token.String() + `","host":1,"lease_ms":1000}`
	tests := []struct {
		name, answer string
		endless      string // sent until the client hangs up
		want         error
	}{
		{"not http", "220 mail ready\r\n", "", ErrProtocol},
		{"endless header", "HTTP/1.1 101 Switching Protocols\r\n", "X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", ErrProtocol},
		{"endless line", ok, strings.Repeat("{", 1000), ErrProtocol},
		{"endless error", "HTTP/1.1 500 No\r\n\r\n" + `{"error":{"message":"`, strings.Repeat("a", 1000), ErrProtocol},
		{"endless header of an error", "HTTP/1.1 500 No\r\n", "X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", ErrProtocol},
		{"line of a header without end", "HTTP/1.1 101 ", strings.Repeat("a", 1000), ErrProtocol},
		{"no links", "HTTP/1.1 404 Not Found\r\nContent-Length: 28\r\n\r\n{\"error\":{\"code\":\"invalid\"}}", "", ErrProtocol},
		{"a stream", "HTTP/1.1 200 OK\r\n\r\n" + granted + "\n", "", ErrProtocol},
		{"ends in the header", "HTTP/1.1 101 Switching Protocols\r\n", "", ErrUnreachable},
		{"error that is none", "HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nnope", "", ErrProtocol},
		{"error without a code", "HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\n{}", "", ErrProtocol},
		{"no json", ok + "hello\n", "", ErrProtocol},
		{"no object", ok + "7\n", "", ErrProtocol},
		{"no token", ok + strings.Replace(granted, token.String(), "0", 1) + "\n", "", ErrProtocol},
		{"token of no host", ok + strings.Replace(granted, token.String(), "1", 1) + "\n", "", ErrProtocol},
		{"token with a sign", ok + strings.Replace(granted, token.String(), "-1", 1) + "\n", "", ErrProtocol},
		{"another lock", ok + strings.Replace(granted, `"x"`, `"y"`, 1) + "\n", "", ErrProtocol},
		{"another mode", ok + strings.Replace(granted, "exclusive", "shared", 1) + "\n", "", ErrProtocol},
		{"refusal without a code", ok + `{"event":"refused"}` + "\n", "", ErrProtocol},
		{"half a line", ok + granted[:20], "", ErrUnreachable},
		{"no newline", ok + granted, "", ErrUnreachable},
		{"ends while waiting", ok + `{"event":"waiting","ahead":1,"queued":1}` + "\n", "", ErrUnreachable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // a broken connection is retried for a second
			socket := serveRaw(t, func(c net.Conn) {
				_, err := io.WriteString(c, test.answer)
				for err == nil && test.endless != "" {
					_, err = io.WriteString(c, test.endless)
				}
			})
			if _, err := New(socket).Lock(t.Context(), "x", Options{}); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

func TestCancelLeavesTheQueue(t *testing.T) {
	waiting := make(chan struct{})
	left := make(chan struct{})
	socket := serve(t, func(x *exchange) {
		x.Send(`{"event":"waiting","ahead":1,"queued":1}`)
		close(waiting)
		<-x.Gone
		close(left)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	go func() {
		<-waiting
		cancel(why)
	}()
	if _, err := New(socket).Lock(ctx, "x", Options{}); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	wait(t, left, "the server to see the client leave")
}

func TestCancelledBeforehand(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("never wanted it")
	cancel(why)
	if _, err := New("/none").Lock(ctx, "x", Options{}); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestCancelAfterTheGrantChangesNothing(t *testing.T) {
	socket := serve(t, func(x *exchange) {
		x.Grant(time.Minute)
		<-x.Gone
	})
	ctx, cancel := context.WithCancel(t.Context())
	h, err := New(socket).Lock(ctx, "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := h.Unlock(); err != nil || h.Err() != nil {
		t.Errorf("Unlock: %v, Err: %v", err, h.Err())
	}
}

func TestLimitOutlastsWhatWasAskedFor(t *testing.T) {
	tests := []struct {
		o    Options
		want time.Duration
		is   error
	}{
		{Options{}, 0, nil},
		{Options{Timeout: time.Minute}, time.Minute + answerTimeout, ErrTimeout},
		{Options{NonBlock: true}, answerTimeout, ErrUnreachable},
		{Options{NonBlock: true, Timeout: time.Minute}, answerTimeout, ErrUnreachable},
	}
	for _, test := range tests {
		got, err := test.o.limit()
		if got != test.want || !errors.Is(err, test.is) {
			t.Errorf("%+v: %v, %v; want %v, %v", test.o, got, err, test.want, test.is)
		}
	}
}
