package client

// Request reports to the holder of a lock that another client wants it.
type Request struct {
	Host     int    // where the client is
	HostName string // empty if unknown
	Message  string // text without control characters; may be empty
}

// maxUnread is how many unread requests are kept.
const maxUnread = 16

// Requests returns the channel of requests for the lock, nil without Options.Requests. Each request
// is sent once; after a restart of bakeryd some may be sent again. The latest maxUnread are kept.
// The channel is never closed.
func (h *Hold) Requests() <-chan Request { return h.requests }

// requested stores a request, and drops the oldest if there is no room.
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
