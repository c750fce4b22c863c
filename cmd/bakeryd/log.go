package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"strings"
)

// level is the value of a flag: a level as slog reads it, also WARN or warn+2.
type level slog.Level

// Type, String and Set implement pflag.Value.
func (l *level) Type() string { return "string" }

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }

func (l *level) Set(text string) error {
	if (*slog.Level)(l).UnmarshalText([]byte(text)) != nil {
		return errors.New(l.Want())
	}
	return nil
}

// Want returns the levels that have a word.
func (l *level) Want() string { return "want debug, info, warn or error" }

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

var priorities = map[string]string{"level=DEBUG": "<7>", "level=INFO": "<6>", "level=WARN": "<4>", "level=ERROR": "<3>"}

func (p priorityWriter) Write(line []byte) (int, error) {
	level, _, _ := bytes.Cut(line, []byte(" "))
	if _, err := p.w.Write(append([]byte(cmp.Or(priorities[string(level)], "<5>")), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
