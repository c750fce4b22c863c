package sim

// resource is what a lock protects: a number that holders increment by a read and a write. It
// checks tokens, as every resource must that outlives leases.
type resource struct {
	w       *world
	name    string
	n       int
	token   uint64
	refused int
}

// read returns the number, or -1 if the token is too old.
func (r *resource) read(h *hold) int {
	if uint64(h.token) < r.token {
		r.refused++
		return -1
	}
	r.token = uint64(h.token)
	return r.n
}

// write writes the number that was read, plus one.
func (r *resource) write(h *hold, read int) {
	if read < 0 || uint64(h.token) < r.token {
		r.refused++
		r.w.count("stale write refused")
		return
	}
	if read != r.n {
		r.w.rules.violate("FENCED", "m%d writes %d after %d to what %s protects, with token %d: the last write was %d",
			h.m.n, read+1, read, r.name, h.token, r.n)
	}
	r.n = read + 1
}
