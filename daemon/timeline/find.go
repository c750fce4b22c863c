package timeline

import (
	"slices"

	"github.com/bakeryd/bakeryd/daemon/events"
)

// An event names its attempt by its request or its token. A restart of bakeryd forgets the request:
// the process and the time of its request find the attempt again. The event that resumed it names
// it from then on.

// find returns the attempt of an event at a lock, nil if none is open.
func (h *historian) find(lock int, r *record) *Attempt {
	if a := h.open[attemptKey{lock: lock, token: r.Token}]; a != nil && r.Token != 0 && r.Kind != events.Enter {
		return a
	}
	if a := h.open[attemptKey{lock: lock, request: r.Request}]; a != nil && r.Request != 0 {
		return a
	}
	switch {
	case r.PID != 0 && r.Kind == events.Request && h.cut != Never && r.at-h.cut <= reconnects:
		return h.again(lock, r)
	case r.PID == 0 || r.Request != 0 || r.Kind == events.Request:
		return nil
	}
	// The request was before a restart, or the journal lacks the grant.
	var best *Attempt
	for _, a := range h.ofProcess(lock, r.PID) {
		if h.open[a.key] == a && (r.Token == 0 || !a.held()) && (best == nil || a.suits(r, best)) {
			best = a
		}
	}
	return best
}

// suits reports whether an event is rather of a than of b, which are of one process.
func (a *Attempt) suits(r *record, b *Attempt) bool {
	if cut := a.cut != Never; r.Kind == events.Resumed && cut != (b.cut != Never) {
		return cut
	}
	if waited := lasted(max(r.WaitedMS, r.HeldMS)); waited > 0 {
		since := r.at - waited // the request
		return abs(int64(a.begin()-since)) < abs(int64(b.begin()-since))
	}
	return b.held() && !a.held()
}

// reconnects bounds how long after a restart a client requests a lock again, in us. A client tries
// for one lease, which is usually this long. A later request is another one.
const reconnects = 30 * 1000 * 1000

// again returns the attempt of a client that requests a lock again, because its bakeryd was
// restarted and did not know it any more. The client has waited since its first request.
func (h *historian) again(lock int, r *record) *Attempt {
	for _, a := range h.ofProcess(lock, r.PID) {
		if a.cut != Never && !a.held() && a.Command == r.Command && (a.End == "" || a.End == Unseen) && r.at-a.cut <= reconnects {
			a.End, a.Ended = "", Never
			h.rename(a, attemptKey{lock: lock, request: r.Request})
			return a
		}
	}
	return nil
}

// maxOfProcess bounds the number of attempts of one process at one lock that are kept to be found
// again.
const maxOfProcess = 1000

// ofProcess returns the attempts of a process that are open, or that it may request again.
func (h *historian) ofProcess(lock, pid int) []*Attempt {
	k := attemptKey{lock: lock, pid: pid}
	all := slices.DeleteFunc(h.ofPID[k], func(a *Attempt) bool { return h.open[a.key] != a && h.last-a.cut > reconnects })
	h.ofPID[k] = all[max(0, len(all)-maxOfProcess):]
	return h.ofPID[k]
}

// rename changes the key of an open attempt.
func (h *historian) rename(a *Attempt, key attemptKey) {
	delete(h.open, a.key)
	a.key = key
	h.open[key] = a
}

// attempt returns the attempt of an event at a lock. It begins one if there is none.
func (h *historian) attempt(lock int, r *record) *Attempt {
	if a := h.find(lock, r); a != nil {
		return a
	}
	key := attemptKey{lock: lock, request: r.Request}
	switch {
	case r.Request != 0:
	case r.Token != 0:
		key.token = r.Token
	default:
		key.pid = r.PID
	}
	a := &Attempt{Host: h.keeperOf(r), Lock: lock, key: key, lock: h.Locks[lock]}
	a.host = h.Hosts[a.Host]
	h.Attempts = append(h.Attempts, a)
	h.open[key] = a
	k := attemptKey{lock: lock, pid: r.PID}
	if h.ofPID[k] = append(h.ofPID[k], a); len(h.ofPID[k]) >= 2*maxOfProcess {
		h.ofProcess(lock, r.PID)
	}
	return a
}

// remove ends the attempt that has removed a lock. Events of earlier versions do not name it.
func (h *historian) remove(lock int, r *record) {
	h.Locks[lock].removed = append(h.Locks[lock].removed, r.at)
	all := h.ofProcess(lock, 0)
	if r.Request != 0 {
		all = []*Attempt{h.open[attemptKey{lock: lock, request: r.Request}]}
	}
	for _, a := range all {
		if a != nil && a.removes() && h.open[a.key] == a {
			a.End, a.Ended = Removed, r.at
			delete(h.open, a.key)
		}
	}
}
