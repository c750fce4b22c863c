package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

const generous = 20 * time.Second

var self = Self{Host: 1, Name: "db1", Incarnation: 7}

func newLog(t testing.TB) *Log {
	t.Helper()
	l := New(clock.Boottime, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(l.Close)
	return l
}

// kept returns a log with a file, and the file.
func kept(t testing.TB, change ...func(*Log)) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.events") // removed after the log is closed
	l := newLog(t)
	for _, f := range change {
		f(l)
	}
	l.Keep(path, self)
	return l, path
}

func all(t testing.TB, l *Log, q Query) (got []Event) {
	t.Helper()
	require.NoError(t, l.Read(q, func(es []Event) error {
		got = append(got, es...)
		return nil
	}))
	return got
}

func inFile(t testing.TB, path string) (got []Event) {
	t.Helper()
	require.NoError(t, ReadFile(path, Query{}, func(es []Event) error {
		got = append(got, es...)
		return nil
	}))
	return got
}

func locks(es []Event) (names []string) {
	for _, e := range es {
		name := e.Lock
		if e.Kind == Gap {
			name = fmt.Sprintf("gap %d", e.Missed)
		}
		names = append(names, name)
	}
	return names
}

func numbers(from, to int) (names []string) {
	for i := from; i <= to; i++ {
		names = append(names, fmt.Sprint(i))
	}
	return names
}

func add(l *Log, from, to int) {
	for _, name := range numbers(from, to) {
		l.Add(Event{Kind: Enter, Lock: name})
	}
}

func requireOrder(t *testing.T, es []Event) {
	t.Helper()
	for i := 1; i < len(es); i++ {
		require.Greater(t, es[i].Seq, es[i-1].Seq)
		require.False(t, es[i].At.Before(es[i-1].At))
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, generous, time.Millisecond, what)
}

func TestNilLogKeepsNothing(t *testing.T) {
	var l *Log
	l.Keep("/nowhere", self)
	require.Zero(t, l.Add(Event{Kind: Enter}))
	require.NoError(t, l.Read(Query{}, nil))
	require.ErrorIs(t, l.Follow(t.Context(), Query{}, nil), ErrClosed)
	l.Close()
}

func TestAddTellsWhoAndWhen(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	before := time.Now().Truncate(time.Microsecond)
	want := Event{Kind: Enter, Lock: "x", Request: 9, PID: 4711, Command: "rsync \"a\" && b\x1b", Mode: "shared", Ticket: layout.MakeTicket(5, 1),
		Token: layout.MakeTicket(5, 1).Grant(2), WaitedMS: 20, Reason: strings.Repeat("ä", maxReason),
		Ahead: []Peer{{Host: 2, HostName: "db2", Phase: "held", Ticket: layout.MakeTicket(4, 2), PID: 3, Command: "c"}}}
	seq := l.Add(want)
	other := l.Add(Event{Kind: Dead, Host: 3, HostName: "db3", Incarnation: 1 << 63, ByHost: 2, ByHostName: "db2"})
	require.Greater(t, other, seq)
	l.Close()
	require.Zero(t, l.Add(want), "it is closed")
	es := inFile(t, path)
	require.Len(t, es, 2)
	got := es[0]
	require.Equal(t, seq, got.Seq)
	require.WithinRange(t, got.At, before, time.Now())
	require.Positive(t, got.UptimeMS)
	require.Len(t, got.Reason, maxReason)
	want.Seq, want.At, want.UptimeMS, want.Reason = got.Seq, got.At, got.UptimeMS, got.Reason
	want.Host, want.HostName, want.Incarnation = 1, "db1", 7
	require.Equal(t, want, got)
	require.Equal(t, []any{3, "db3", text.Hex(1 << 63)}, []any{es[1].Host, es[1].HostName, es[1].Incarnation}, "it is about another host")
	require.Equal(t, es, all(t, l, Query{}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), "\x1b")
	require.Contains(t, string(text), `a\" && b`, "as one would look for it")
}

// TestParse_IncarnationInDecimal_IsThatOfAnEarlierVersion: a journal outlives an update.
func TestParse_IncarnationInDecimal_IsThatOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]text.Hex{`"18364758544493064720"`: 0xfedcba9876543210, `"17"`: 17, `"1234567890123456"`: 1234567890123456} {
		path := filepath.Join(t.TempDir(), "old.events")
		line := `{"seq":"8","at":"2026-11-21T03:12:00Z","uptime_ms":1,"kind":"dead","host":3,"boot":"b1","incarnation":` + written + "}\n"
		require.NoError(t, os.WriteFile(path, []byte(line), 0o600))
		require.NoError(t, ReadFile(path, Query{}, func(es []Event) error {
			require.Len(t, es, 1)
			require.Equal(t, Event{Seq: 8, At: time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC), UptimeMS: 1, Kind: Dead, Host: 3, Boot: "b1", Incarnation: want}, es[0])
			return nil
		}))
	}
	require.Error(t, new(Event).Parse([]byte(`{"seq":"8","incarnation":"ff"}`)))
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	add(l, 1, ringSize+10)
	got := all(t, l, Query{})
	require.Equal(t, "gap 0", locks(got)[0], "what was forgotten is not passed over in silence")
	require.Equal(t, numbers(11, ringSize+10), locks(got[1:]))
	requireOrder(t, got[1:])
	require.Equal(t, numbers(ringSize, ringSize+10), locks(all(t, l, Query{Since: got[ringSize-11].Seq})))
}

func TestQueries(t *testing.T) {
	t.Parallel()
	l, _ := kept(t)
	first := l.Add(Event{Kind: Enter, Lock: "x"})
	l.Add(Event{Kind: Enter, Lock: "y"})
	l.Add(Event{Kind: Dead, Host: 2})
	last := l.Add(Event{Kind: Exit, Lock: "x"})
	require.Equal(t, []string{"x", "", "x"}, locks(all(t, l, Query{Lock: "x"})), "what befell a host concerns all locks")
	require.Equal(t, []string{"y", "", "x"}, locks(all(t, l, Query{Since: first})))
	require.Empty(t, all(t, l, Query{Since: last}))
	es := all(t, l, Query{})
	require.Equal(t, []string{"x", "y", "", "x"}, locks(es))
	require.Empty(t, all(t, l, Query{From: es[3].At.Add(time.Microsecond)}))
	require.Empty(t, all(t, l, Query{Until: es[0].At}))
	require.Len(t, all(t, l, Query{From: es[0].At, Until: es[3].At.Add(time.Microsecond)}), 4)
	failed := errors.New("no more")
	require.Equal(t, failed, l.Read(Query{}, func([]Event) error { return failed }))
}

func TestFollow(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	add(l, 1, 1)
	l.Close()
	l = newLog(t)
	l.Keep(path, self)
	got := make(chan []string, 100)
	done := make(chan error, 1)
	go func() {
		done <- l.Follow(context.Background(), Query{}, func(es []Event) error {
			got <- locks(es)
			return nil
		})
	}()
	next := func() string {
		t.Helper()
		select {
		case names := <-got:
			return strings.Join(names, " ")
		case <-time.After(generous):
			t.Fatal("not told")
			return ""
		}
	}
	require.Equal(t, "1", next(), "of the file")
	add(l, 2, 2)
	require.Equal(t, "2", next())
	l.Add(Event{Kind: Exit, Lock: "3"})
	l.Close()
	require.Equal(t, "3", next(), "also of the end")
	require.ErrorIs(t, <-done, ErrClosed)

	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	l = newLog(t)
	require.ErrorIs(t, l.Follow(ctx, Query{}, nil), gone)
}

// TestFollowSlowly: a reader that is slower than the ring gets the rest from the file.
func TestFollowSlowly(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	var got []string
	const n = 3 * ringSize
	started, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- l.Follow(context.Background(), Query{}, func(es []Event) error {
			if got = append(got, locks(es)...); len(got) == 1 {
				close(started)
				<-goOn
			}
			return nil
		})
	}()
	add(l, 1, 1)
	<-started
	for i := 2; i <= n; i += 1000 { // no faster than the disk
		add(l, i, min(i+999, n))
		last := l.last
		eventually(t, "it is written", func() bool { return lastIn(path) >= last })
	}
	close(goOn)
	l.Close()
	require.ErrorIs(t, <-done, ErrClosed)
	require.Equal(t, numbers(1, n), got)
}

// TestLog_Follow_EventsComeQuickly_PassesThemInBatches: each event once woke every follower. With 10
// of them a lock passed ten times more slowly between its clients.
func TestLog_Follow_EventsComeQuickly_PassesThemInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events, every = 1000, time.Millisecond
		l := New(clock.Boottime, slog.New(slog.DiscardHandler))
		defer l.Close()
		var got []string
		batches, first := 0, time.Duration(0)
		done, began := make(chan error), time.Now()
		go func() {
			done <- l.Follow(t.Context(), Query{}, func(es []Event) error {
				if batches++; batches == 1 {
					first = time.Since(began)
				}
				if got = append(got, locks(es)...); len(got) == events {
					return io.EOF
				}
				return nil
			})
		}()
		time.Sleep(time.Minute)
		began = time.Now()
		for n := range events {
			add(l, n, n)
			time.Sleep(every)
		}
		require.ErrorIs(t, <-done, io.EOF)
		require.Equal(t, numbers(0, events-1), got)
		require.LessOrEqual(t, batches, 1+int(events*every/followPause))
		require.Zero(t, first, "an event after a pause is passed on immediately")
	})
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	const writers, each = 8, 400
	var adding, following sync.WaitGroup
	for range 3 {
		following.Go(func() {
			n, last := 0, uint64(0)
			err := l.Follow(context.Background(), Query{}, func(es []Event) error {
				for _, e := range es {
					if e.Seq <= last {
						return fmt.Errorf("%d after %d", e.Seq, last)
					}
					last = e.Seq
				}
				n += len(es)
				return nil
			})
			if !errors.Is(err, ErrClosed) || n != writers*each {
				t.Errorf("%d events, want %d: %v", n, writers*each, err)
			}
		})
	}
	for range writers {
		adding.Go(func() { add(l, 1, each) })
	}
	adding.Wait()
	l.Close()
	following.Wait()
	require.Len(t, inFile(t, path), writers*each)
}

var allKinds = []Kind{Request, Waiting, Choosing, Ticket, Enter, ModeSet, Exit, Timeout, Cancel, Busy, Refused, Wanted, Removed, Resumed, Orphan,
	Kill, Remains, Lost, Joined, AtRisk, Seen, Asked, Fenced, Dead, Left, DiskLost, DiskBack, Replaced, Gap, ""}

// FuzzAppendLine: a line is that of encoding/json, of each kind, with any strings.
func FuzzAppendLine(f *testing.F) {
	for _, kind := range allKinds {
		f.Add(string(kind), "db/ä <1>", "sh -c 'x && y' >\"z\"\\\n", 4711, uint64(1)<<63, int64(1e18), int64(12345), uint8(2), "held")
		f.Add(string(kind), "\u2028\xff\x7f\x00", "\x1b[1m", -1, uint64(5), int64(-1), int64(-2), uint8(17), "\t\r\b\f")
		f.Add(string(kind), "", "", 0, uint64(0), int64(0), int64(0), uint8(1), "")
	}
	f.Fuzz(func(t *testing.T, kind, name, command string, n int, number uint64, at, ms int64, peers uint8, words string) {
		e := Event{Seq: number, At: time.Unix(0, at).UTC(), UptimeMS: ms, Kind: Kind(kind), Lock: name, Host: n, HostName: words, Incarnation: text.Hex(number),
			ByHost: n, ByHostName: name, Boot: words, Request: number, PID: n, Command: command, Mode: words, Permits: n,
			Ticket: layout.Ticket(number), Token: layout.Ticket(number), AheadCount: n, WaitedMS: ms, HeldMS: ms, Missed: number, Reason: command}
		for i := range peers {
			e.Ahead = append(e.Ahead, Peer{Host: n, HostName: name, Phase: words, Mode: words, Ticket: layout.Ticket(number), PID: int(i),
				Command: command, Request: number})
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		require.NoError(t, enc.Encode(&e))
		require.Equal(t, "before"+want.String(), string(e.AppendLine([]byte("before"))))
	})
}

// TestAppendLine_EachMember_IsWrittenAsByJSON: also one that is added to Event or Peer later.
func TestAppendLine_EachMember_IsWrittenAsByJSON(t *testing.T) {
	members := reflect.TypeFor[Event]().NumField()
	for i := range members {
		var e Event
		switch v := reflect.ValueOf(&e).Elem().Field(i); v.Kind() {
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Uint64:
			v.SetUint(7)
		case reflect.String:
			v.SetString("x")
		}
		for k := range reflect.TypeFor[Peer]().NumField() {
			var p Peer
			switch v := reflect.ValueOf(&p).Elem().Field(k); v.Kind() {
			case reflect.Int:
				v.SetInt(7)
			case reflect.Uint64:
				v.SetUint(7)
			case reflect.String:
				v.SetString("x")
			}
			e.Ahead = append(e.Ahead, p)
		}
		want, err := json.Marshal(e)
		require.NoError(t, err)
		require.Equal(t, string(want)+"\n", string(e.AppendLine(nil)))
	}
}

// stepped is a clock that is read at times that a test sets.
type stepped struct {
	clock.Clock
	now   time.Duration
	reads int
}

func (s *stepped) Now() time.Duration { s.reads++; return s.now }

// TestLog_Uptime_FollowsTheClock: it is read again when a second has passed, or when the wall clock and
// the monotonic one have moved apart, as after a sleep of the machine or a step of the wall clock.
func TestLog_Uptime_FollowsTheClock(t *testing.T) {
	const year, hour = 365 * 24 * time.Hour, time.Hour
	host := &stepped{now: 5 * hour}
	l := New(host, slog.New(slog.DiscardHandler))
	for _, at := range []struct {
		wall, monotonic, now, want time.Duration
		reads                      int
	}{
		{56 * year, 0, 5 * hour, 5 * hour, 1},
		{56*year + time.Millisecond, time.Millisecond, 6 * hour, 5*hour + time.Millisecond, 1},
		{56*year + time.Second, time.Second - time.Millisecond, 6 * hour, 5*hour + time.Second - time.Millisecond, 1}, // slewed
		{56*year + hour, time.Second, 6 * hour, 6 * hour, 2},                                                          // slept
		{55 * year, time.Second, 7 * hour, 7 * hour, 3},                                                               // set back
		{55*year + 2*time.Second, 3 * time.Second, 8 * hour, 8 * hour, 4},
		{55*year + 2*time.Second + 5, 3*time.Second + 5, 9 * hour, 8*hour + 5, 4},
	} {
		host.now = at.now
		require.Equal(t, at.want, l.uptime(at.wall, at.monotonic), "%+v", at)
		require.Equal(t, at.reads, host.reads, "%+v", at)
	}
}

// TestLog_UptimeReadLate_DoesNotDecrease: the thread was not scheduled for 50 ms before it read the
// clock. The timeline takes a lower uptime for a boot.
func TestLog_UptimeReadLate_DoesNotDecrease(t *testing.T) {
	host := &stepped{now: time.Hour + 50*time.Millisecond}
	l := New(host, slog.New(slog.DiscardHandler))
	before := l.uptime(time.Hour, time.Hour)
	before = max(before, l.uptime(time.Hour+time.Second, time.Hour+time.Second))
	host.now = time.Hour + time.Second + time.Millisecond
	require.GreaterOrEqual(t, l.uptime(host.now, host.now), before)
	require.Equal(t, 2, host.reads)
}

func BenchmarkAppendLine(b *testing.B) {
	e := Event{Seq: 1795650000000000, At: time.Now().UTC().Truncate(time.Microsecond), UptimeMS: 1e7, Kind: Enter, Lock: "nightly-backup", Host: 1, HostName: "db1",
		Incarnation: 1 << 60, Request: 1795650000000000, PID: 4711, Command: "/usr/local/bin/backup", Mode: "exclusive", Token: layout.MakeTicket(5, 1),
		Ahead: []Peer{{Host: 1, HostName: "db1", Phase: "held", Mode: "exclusive", PID: 4712, Command: "/usr/local/bin/backup", Request: 1795650000000000}}}
	b.Run("by hand", func(b *testing.B) {
		var line []byte
		b.ReportAllocs()
		for b.Loop() {
			line = e.AppendLine(line[:0])
		}
	})
	b.Run("by encoding/json", func(b *testing.B) {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		b.ReportAllocs()
		for b.Loop() {
			line.Reset()
			_ = enc.Encode(&e)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	for name, log := range map[string]func() *Log{
		"none":   func() *Log { return nil },
		"memory": func() *Log { return newLog(b) },
		"file":   func() *Log { l, _ := kept(b); return l },
	} {
		b.Run(name, func(b *testing.B) {
			l := log()
			e := Event{Kind: Enter, Lock: "nightly-backup", PID: 4711, Command: "/usr/local/bin/backup", Mode: "exclusive", Token: layout.MakeTicket(5, 1)}
			b.ReportAllocs()
			for b.Loop() {
				l.Add(e)
			}
		})
	}
}

func TestReadFileOfAnotherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte("root:x:0:0\n{}\n"), 0o600))
	require.ErrorIs(t, ReadFile(path, Query{}, func([]Event) error { return nil }), ErrNotJournal)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, ReadFile(path, Query{}, func([]Event) error { return nil }))
}

// TestLineOfNoClock: a line with a Seq above any clock is damage, and does not hide added events.
func TestLineOfNoClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.events")
	line := `{"seq":"18446744073709551615","at":"2026-11-21T03:12:00Z","uptime_ms":1,"kind":"exit"}` + "\n"
	require.NoError(t, os.WriteFile(path, []byte(line), 0o600))
	l := New(clock.Boottime, slog.New(slog.DiscardHandler))
	l.Keep(path, Self{Host: 1})
	l.Add(Event{Kind: Enter, Lock: "x"})
	l.Close()
	var kinds []Kind
	require.NoError(t, ReadFile(path, Query{}, func(es []Event) error {
		for _, e := range es {
			kinds = append(kinds, e.Kind)
		}
		return nil
	}))
	require.Equal(t, []Kind{Gap, Enter}, kinds)
}

// TestReadFile_Turns_EndBeforeTheCaller: a client that is slow to take events keeps no turn.
func TestReadFile_Turns_EndBeforeTheCaller(t *testing.T) {
	var lines []byte
	for seq := range uint64(2*batchSize + 1) {
		lines = (&Event{Seq: seq + 1, At: time.Now(), Kind: Gap}).AppendLine(lines)
	}
	path := filepath.Join(t.TempDir(), "x.events")
	require.NoError(t, os.WriteFile(path, lines, 0o600))
	for _, q := range []Query{{}, {Lock: "x", Until: time.Unix(1, 0)}} { // all are selected, or none
		turns, reading, got := 0, false, 0
		q.Turn = func() (func(), error) {
			require.False(t, reading)
			turns++
			reading = true
			return func() { reading = false }, nil
		}
		require.NoError(t, ReadFile(path, q, func(es []Event) error {
			require.False(t, reading)
			got += len(es)
			return nil
		}))
		require.False(t, reading)
		require.Equal(t, 3, turns, "one for each batch")
		require.Equal(t, q.Lock == "", got == 2*batchSize+1)
	}
}

// TestReadFile_TurnFails_EndsTheRead: with that error, and without a further batch.
func TestReadFile_TurnFails_EndsTheRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.events")
	var lines []byte
	for seq := range uint64(3 * batchSize) {
		lines = (&Event{Seq: seq + 1, At: time.Now(), Kind: Gap}).AppendLine(lines)
	}
	require.NoError(t, os.WriteFile(path, lines, 0o600))
	turns, got := 0, 0
	err := ReadFile(path, Query{Turn: func() (func(), error) {
		if turns++; turns == 2 {
			return nil, io.ErrClosedPipe
		}
		return func() {}, nil
	}}, func(es []Event) error {
		got += len(es)
		return nil
	})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Equal(t, batchSize, got)
}
