package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"strings"
	"time"
)

// trace records what happens, in order. Its sum shows whether two runs are equal.
type trace struct {
	began time.Time
	out   io.Writer // nil: only the sum
	sum   uint64
	steps int
}

func newTrace(out io.Writer) *trace {
	return &trace{began: time.Now(), out: out, sum: fnv.New64a().Sum64()}
}

// step records an event of a host; 0 is the world.
func (tr *trace) step(host int, what string, n ...int64) {
	at := time.Since(tr.began)
	tr.steps++
	tr.mix(uint64(at))
	tr.mix(uint64(host))
	for _, c := range []byte(what) {
		tr.sum = (tr.sum ^ uint64(c)) * 1099511628211
	}
	for _, v := range n {
		tr.mix(uint64(v))
	}
	if tr.out == nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%12.6f  ", at.Seconds())
	if host != 0 {
		fmt.Fprintf(&b, "%*sm%d ", 4*host-4, "", host)
	}
	b.WriteString(what)
	for _, v := range n {
		fmt.Fprintf(&b, " %d", v)
	}
	fmt.Fprintln(tr.out, b.String())
}

func (tr *trace) mix(v uint64) {
	for range 8 {
		tr.sum = (tr.sum ^ v&0xff) * 1099511628211
		v >>= 8
	}
}

// logger writes a daemon's log into the trace, if it is printed.
func (tr *trace) logger(host int) *slog.Logger {
	if tr.out == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(logHandler{tr: tr, host: host})
}

type logHandler struct {
	tr    *trace
	host  int
	attrs string
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q%s", r.Level, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	fmt.Fprintf(h.tr.out, "%12.6f  %*sm%d %s\n", time.Since(h.tr.began).Seconds(), 4*h.host-4, "", h.host, b.String())
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return h
}

func (h logHandler) WithGroup(string) slog.Handler { return h }
