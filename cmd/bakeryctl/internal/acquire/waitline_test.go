package acquire

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// answering returns a blocker that answers with words, and counts the calls.
func answering(words string, calls *int) Blocker {
	return func(context.Context, string) (string, error) { *calls++; return words, nil }
}

const held = `held by db1 (host 1), pid 2234 "sleep 300", for 38 s`

func TestWaitLine_NoTerminal_IsOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		blocker Blocker
		want    string
	}{
		"held":         {answering(held, new(int)), `bakeryctl: waiting for "nightly": ` + held + "; 2 ahead\n"},
		"not known":    {answering("", new(int)), "bakeryctl: waiting for \"nightly\": 2 ahead\n"},
		"older daemon": {func(context.Context, string) (string, error) { return "", errors.New("no such call") }, "bakeryctl: waiting for \"nightly\": 2 ahead\n"},
		"no answer":    {func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }, "bakeryctl: waiting for \"nightly\": 2 ahead\n"},
		"hostile":      {answering("held by \x1b[2J\n", new(int)), `bakeryctl: waiting for "nightly": "held by \x1b[2J\n"; 2 ahead` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out logtest.Log
				l := startWaitLine(&out, "nightly", false)
				l.blocker = c.blocker
				l.update(2)
				printed := func(after time.Duration) string {
					time.Sleep(after)
					synctest.Wait()
					return out.String()
				}
				before, then := printed(WaitSilent-time.Nanosecond), printed(askTimeout+time.Nanosecond)
				l.update(1)
				end := printed(time.Hour)
				l.stop()
				require.Equal(t, []string{"", c.want, c.want, c.want}, []string{before, then, end, out.String()})
			})
		})
	}
}

func TestWaitLine_Quiet_ShowsWarningsAndAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logtest.Log
		calls := 0
		l := startWaitLine(&out, "nightly", true)
		l.blocker = answering(held, &calls)
		l.update(2)
		l.warn("process 5 holds it")
		time.Sleep(time.Hour)
		l.stop()
		require.Equal(t, "bakeryctl: warning: process 5 holds it\n", out.String())
		require.Zero(t, calls)
	})
}

// TestWaitLine_GrantedDuringTheQuestion_PrintsNothing: the command may have started.
func TestWaitLine_GrantedDuringTheQuestion_PrintsNothing(t *testing.T) {
	for range 20 { // a select with two cases takes any
		synctest.Test(t, func(t *testing.T) {
			var out logtest.Log
			release := make(chan struct{})
			l := startWaitLine(&out, "nightly", false)
			l.blocker = func(context.Context, string) (string, error) { <-release; return held, nil }
			l.update(2)
			time.Sleep(WaitSilent + time.Millisecond)
			close(l.done)
			close(release)
			<-l.removed
			require.Empty(t, out.String())
		})
	}
}

// TestWaitLine_NoTerminal_AsksOnce: hundreds of clients may wait.
func TestWaitLine_NoTerminal_AsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		l := startWaitLine(new(logtest.Log), "nightly", false)
		l.blocker = answering(held, &calls)
		for ahead := range 100 {
			l.update(100 - ahead)
			time.Sleep(time.Second)
		}
		l.stop()
		require.Equal(t, 1, calls)
	})
}

// TestWaitLine_FullPipe_IsPrintedLater: and delays nothing.
func TestWaitLine_FullPipe_IsPrintedLater(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	require.True(t, term.Writable(w))
	filled := 0
	for term.Writable(w) {
		n, err := w.WriteString(strings.Repeat("x", 4096))
		require.NoError(t, err)
		filled += n
	}
	s := shownLine{waitLine: &waitLine{out: w, name: "nightly", done: make(chan struct{})}, blocker: held}
	require.False(t, s.show(), "the pipe is full")
	_, err = r.Read(make([]byte, filled))
	require.NoError(t, err)
	require.True(t, s.show())
	require.NoError(t, r.Close())
	require.False(t, term.Writable(w), "a write would end this process")
}

func TestFit_LongLine_CutsTheBlockerFirst(t *testing.T) {
	const what, place = `bakeryctl: waiting for "nightly"`, "12 ahead"
	for columns, want := range map[int]string{
		200:                      what + ": " + held + "; 12 ahead",
		len(what+held+place) + 4: what + ": " + held + "; 12 ahead",
		len(what+held+place) + 3: what + ": " + held[:len(held)-5] + "...; 12 ahead",
		79:                       what + `: held by db1 (host 1), pid 2234...; 12 ahead`,
		50:                       what + ": hel...; 12 ahead",
		46:                       what + ": 12 ahead",
		20:                       "bakeryctl: waiting f",
		0:                        "",
	} {
		got := fit(what, held, place, columns)
		require.Equal(t, want, got, "%d columns", columns)
		require.LessOrEqual(t, width(got), columns)
	}
	require.Equal(t, "ab: 日本...; 0 ahead", fit("ab", "日本語のロック", "0 ahead", 21), "wide characters")
}

func TestGaveUp_Conflict_IsExplained(t *testing.T) {
	request := func(change func(*Request)) Request {
		o := Request{Name: "nightly", Conflict: 42, line: &waitLine{name: "nightly"}}
		o.Timeout = 5 * time.Second
		o.line.ahead.Store(1)
		o.AskBlocker(answering(held, new(int)))
		change(&o)
		return o
	}
	timeout, busy := error(client.ErrTimeout), error(&api.Error{Code: api.CodeBusy, Message: "held"})
	for name, c := range map[string]struct {
		err    error
		change func(*Request)
		want   string
	}{
		"timeout":         {timeout, func(*Request) {}, `gave up waiting for "nightly" after 5 s: ` + held + "; 1 ahead"},
		"part of seconds": {timeout, func(o *Request) { o.Timeout = 1500 * time.Millisecond }, `gave up waiting for "nightly" after 1.5 s: ` + held + "; 1 ahead"},
		"minutes":         {timeout, func(o *Request) { o.Timeout = 90 * time.Minute }, `gave up waiting for "nightly" after 90 min: ` + held + "; 1 ahead"},
		"nothing known":   {timeout, func(o *Request) { o.line.blocker = nil; o.line.ahead.Store(-1) }, `gave up waiting for "nightly" after 5 s`},
		"not free":        {busy, func(o *Request) { o.NonBlock = true; o.line.ahead.Store(-1) }, `"nightly" is not free: ` + held},
	} {
		t.Run(name, func(t *testing.T) {
			f := request(c.change).GaveUp(t.Context(), c.err)
			require.Equal(t, 42, f.Code)
			require.EqualError(t, f.Err, c.want)
		})
	}
	quiet := request(func(o *Request) { o.Quiet = true })
	require.Equal(t, &cli.Failure{Code: 42}, quiet.GaveUp(t.Context(), busy))
	require.Nil(t, quiet.GaveUp(t.Context(), client.ErrLost))
}
