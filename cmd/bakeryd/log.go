package main

import (
	"bytes"
	"io"
	"log/slog"
)

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, o))
	case "journal":
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // the journal adds its own
			}
			return a
		}
		w = priorityWriter{w}
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// priorityWriter begins each line with the priority of sd-daemon(3), so that the journal has the
// level. Its handler writes one line at a time.
type priorityWriter struct{ w io.Writer }

var priorities = []struct{ level, prefix []byte }{
	{[]byte("level=DEBUG"), []byte("<7>")},
	{[]byte("level=INFO"), []byte("<6>")},
	{[]byte("level=WARN"), []byte("<4>")},
	{[]byte("level=ERROR"), []byte("<3>")},
}

func (p priorityWriter) Write(line []byte) (int, error) {
	prefix := []byte("<5>")
	for _, c := range priorities {
		if bytes.HasPrefix(line, c.level) {
			prefix = c.prefix
		}
	}
	if _, err := p.w.Write(append(prefix[:len(prefix):len(prefix)], line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
