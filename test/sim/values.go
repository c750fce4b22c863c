package sim

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// value is what a lock's value may be.
type value struct {
	token layout.Ticket // of the last value that was certainly written
	texts map[layout.Ticket]string
}

func (r *rules) valueOf(name string) *value {
	v := r.values[name]
	if v == nil {
		v = &value{texts: map[layout.Ticket]string{}}
		r.values[name] = v
	}
	return v
}

// valueBegun records that a value may be written from now on.
func (r *rules) valueBegun(h *hold, text string) { r.valueOf(h.subject.name).texts[h.token] = text }

func (r *rules) valueSet(h *hold, _ string) {
	if v := r.valueOf(h.subject.name); r.counts(h, time.Now()) {
		v.token = max(v.token, h.token)
	}
}

// valueRead checks a value read by an exclusive holder.
func (r *rules) valueRead(h *hold, got locks.Value) {
	v := r.valueOf(h.subject.name)
	if !r.counts(h, time.Now()) {
		return
	}
	if got.Token < v.token || got.Token != 0 && v.texts[got.Token] != string(got.Value) {
		r.violate("VALUE", "m%d reads %q of token %d as the value of %s, last written was token %d (%q)", h.m.n, got.Value, got.Token,
			h.subject.name, v.token, v.texts[v.token])
	}
}
