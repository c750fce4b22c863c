package client

// Request tells the holder of a lock that somebody wants it.
type Request struct {
	Host     int    // where it is wanted
	HostName string // empty if it is not known
	Message  string // text without control characters; may be empty
}

// maxUnread is how many requests are kept that nobody has received yet.
const maxUnread = 16

// Requests gets the requests for the lock, if they were asked for with Options.Requests: each once, those that
// bakeryd has told before it was restarted perhaps once more. Where nobody receives them the last ones are kept. It
// is never closed; nil if they were not asked for.
func (h *Hold) Requests() <-chan Request { return h.requests }

// requested keeps a request, in place of the oldest if there is no room.
func (h *Hold) requested(r Request) {
	if h.requests == nil {
		return
	}
	for {
		select {
		case h.requests <- r:
			return
		default:
		}
		select {
		case <-h.requests:
		default:
		}
	}
}
