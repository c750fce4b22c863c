package api

import (
	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

// LockRequest is the body of POST /v1/lock, and the lock member of a link's line.
type LockRequest struct {
	Name      string      `json:"name"`
	Mode      layout.Mode `json:"mode"`       // exclusive if not given
	NonBlock  bool        `json:"nonblock"`   // refuse as busy instead of waiting
	TimeoutMS int64       `json:"timeout_ms"` // 0 if none
	Permits   int         `json:"permits"`    // 0: the lock's
	PID       int         `json:"pid"`        // 0: the peer's
	Command   string      `json:"command"`
	// 32 hex digits chosen by the client, to reconnect to; empty if none
	Session string `json:"session"`
	// reconnect to the hold with this token, or be refused; 0 requests the lock
	Token   layout.Ticket `json:"token"`
	Witness bool          `json:"witness"` // create a FIFO that the command holds the lock by

	// on a link: pass the lock on if the client does not confirm the grant in time
	Confirm bool `json:"confirm"`
	// notify the holder of requests for the lock; repeated when the client reconnects
	Requests bool `json:"requests"`
}

// Append appends the JSON of the request.
func (r *LockRequest) Append(to []byte) []byte {
	o := line.Write(to)
	r.members(&o)
	return o.End()
}

// ReadPlain sets the members from the output of Append. It returns false for all other texts.
func (r *LockRequest) ReadPlain(text []byte) bool {
	o := line.Read(text)
	r.members(&o)
	return o.Done()
}

// members lists the members in the order of Append.
func (r *LockRequest) members(o *line.Object) {
	o.Text(`"name":`, &r.Name)
	line.Quoted(o, `"mode":`, &r.Mode, true)
	o.Flag(`"nonblock":`, &r.NonBlock)
	line.Number(o, `"timeout_ms":`, &r.TimeoutMS, false)
	line.Number(o, `"permits":`, &r.Permits, false)
	line.Number(o, `"pid":`, &r.PID, false)
	o.Text(`"command":`, &r.Command)
	o.Text(`"session":`, &r.Session)
	line.Quoted(o, `"token":`, &r.Token, false)
	o.Flag(`"witness":`, &r.Witness)
	o.Flag(`"requests":`, &r.Requests)
	o.Flag(`"confirm":`, &r.Confirm)
}
