package mirror

// register is a record as this process writes it. It decides what is written to which member, and
// when a write has returned.
type register struct {
	off     int64
	newest  Version // of the last write
	copies  []copyState
	waiting []*waiter
}

// copyState is the copy of a record on one member.
type copyState struct {
	inFlight []byte  // content of the request in flight; nil if none
	next     []byte  // content that waits, always of the newest version; nil if none
	version  Version // of inFlight
	acked    Version // of the last request, if it succeeded; otherwise zero
	kept     Version // greatest that was ever acknowledged
	paused   bool    // next failed and waits for its retry
	once     bool    // inFlight is not repeated if it fails: it was dropped
	listed   bool    // the record is in the list of the member
}

// waiter is a write that has not returned.
type waiter struct {
	version Version
	acked   Positions         // members that acknowledged this version or a later one
	errs    [maxMembers]error // of the other members that failed
	done    chan<- struct{}   // of the caller of decide, with room for one signal
}

func newRegister(off int64, members int) *register {
	return &register{off: off, copies: make([]copyState, members)}
}

// write makes contents, one for each member, the newest. It replaces contents by those that were
// superseded. w waits for the result.
func (r *register) write(v Version, contents [][]byte, w *waiter) error {
	if v.Less(r.newest) {
		return ErrOlder
	}
	r.newest, w.version = v, v
	for i := range r.copies {
		c := &r.copies[i]
		c.next, contents[i] = contents[i], c.next
		c.paused = false
	}
	r.waiting = append(r.waiting, w)
	return nil
}

// ready reports whether a copy can be begun: FIFO.
func (r *register) ready(i int) bool {
	c := &r.copies[i]
	return c.next != nil && c.inFlight == nil && !c.paused
}

// begin begins the copy that is ready, and returns its content.
func (r *register) begin(i int) []byte {
	c := &r.copies[i]
	c.inFlight, c.next, c.version, c.once = c.next, nil, r.newest, false
	return c.inFlight
}

// returned ends the request in flight. It returns the content if that is no longer needed, or
// whether it must be retried.
func (r *register) returned(i int, err error) (unused []byte, retry bool) {
	c := &r.copies[i]
	content := c.inFlight
	c.inFlight, c.acked = nil, Version{}
	if err == nil {
		c.acked, c.kept = c.version, c.version
		for _, w := range r.waiting {
			if !c.version.Less(w.version) {
				w.acked |= At(i)
			}
		}
		return content, false
	}
	r.fail(i, c.version, err)
	if c.next != nil || c.once {
		return content, false
	}
	c.next, c.paused = content, true
	return nil, true
}

// unavailable notes that the member is down. A copy in flight may still be acknowledged.
func (r *register) unavailable(i int, err error) {
	if c := &r.copies[i]; c.inFlight == nil && c.next != nil {
		r.fail(i, r.newest, err)
	}
}

// fail notes an error for the writes up to a version.
func (r *register) fail(i int, upTo Version, err error) {
	for _, w := range r.waiting {
		if !upTo.Less(w.version) {
			w.errs[i] = err
		}
	}
}

// drop gives up the copies that were not begun, and returns their contents.
func (r *register) drop() (unused [][]byte) {
	for i := range r.copies {
		c := &r.copies[i]
		c.once = c.inFlight != nil
		if c.next == nil {
			continue
		}
		unused = append(unused, c.next)
		for _, w := range r.waiting {
			if !w.acked.Has(i) && (c.inFlight == nil || c.version.Less(w.version)) {
				w.errs[i] = ErrDropped
			}
		}
		c.next, c.paused = nil, false
	}
	return unused
}

// lacked returns the newest content if a copy does not have it and was not dropped, otherwise nil.
func (r *register) lacked() []byte {
	for i := range r.copies {
		c := &r.copies[i]
		switch {
		case c.next != nil:
			return c.next
		case c.inFlight != nil && !c.once:
			return c.inFlight
		}
	}
	return nil
}

// replace makes a copy that of a new member, for which content waits: REPLACED. The writes that have not
// returned fail there until it acknowledges them. replace returns the content that waited before.
func (r *register) replace(i int, content []byte, err error) (unused []byte) {
	unused = r.copies[i].next
	r.copies[i] = copyState{next: content}
	for _, w := range r.waiting {
		w.acked &^= At(i)
		w.errs[i] = err
	}
	return unused
}

// behind reports whether a copy is known not to have the newest version.
func (r *register) behind(i int) bool {
	return r.copies[i].next != nil || r.copies[i].inFlight != nil
}

// decide removes and returns the writes that are decided: MAJORITY. The result is valid until the
// next write.
func (r *register) decide() (decided []*waiter) {
	open, all := 0, r.waiting
	for i, w := range all {
		majority := len(r.copies)/2 + 1
		if w.acked.Count() < majority && w.failed().Count() <= len(r.copies)-majority {
			all[open], all[i] = w, all[open]
			open++
		}
	}
	r.waiting = all[:open]
	return all[open:]
}

// failed returns the members that failed and did not acknowledge.
func (w *waiter) failed() (ps Positions) {
	for i, err := range w.errs {
		if err != nil {
			ps |= At(i)
		}
	}
	return ps &^ w.acked
}
