package daemon

import (
	"strconv"
	"time"

	"github.com/bakeryd/bakeryd/daemon/line"
	"github.com/bakeryd/bakeryd/layout"
)

// event is one line of what bakeryd says to who asked for a lock.
type event struct {
	Event   string         `json:"event"` // waiting, granted, renewed, requested, mode, refused, lost; on a link confirmed, released, kept
	Ahead   *int           `json:"ahead,omitempty"`
	Queued  *int           `json:"queued,omitempty"`
	Name    string         `json:"name,omitempty"`
	Mode    *layout.Mode   `json:"mode,omitempty"`
	Change  uint64         `json:"change,omitempty"` // granted, mode: how often the mode has changed
	Token   *layout.Ticket `json:"token,omitempty"`
	HostID  int            `json:"host_id,omitempty"`
	LeaseMS *int64         `json:"lease_ms,omitempty"` // until the lease ends; clocks differ, so not a time. waiting: the whole lease
	AtMS    *int64         `json:"at_ms,omitempty"`    // when that was so, on CLOCK_BOOTTIME: it may be read late
	GraceMS int64          `json:"grace_ms,omitempty"` // how long before the end of the lease the holder is to stop
	Witness string         `json:"witness,omitempty"`  // path of the FIFO that was asked for
	Code    string         `json:"code,omitempty"`
	Message string         `json:"message,omitempty"`
	Hint    string         `json:"hint,omitempty"`

	Host     int    `json:"host,omitempty"` // requested: where the lock is wanted
	HostName string `json:"host_name,omitempty"`
}

// runs adds how long it is until the end of the lease, now.
func (e event) runs(now, deadline time.Duration) event {
	at := now.Milliseconds()
	ms := deadline.Milliseconds() - at
	e.LeaseMS, e.AtMS = &ms, &at
	return e
}

// append adds the event as encoding/json writes it, and the end of the line. It
// is on the way to every grant.
func (e *event) append(to []byte) []byte {
	to = line.AppendString(append(to, `{"event":`...), e.Event)
	if e.Ahead != nil {
		to = strconv.AppendInt(append(to, `,"ahead":`...), int64(*e.Ahead), 10)
	}
	if e.Queued != nil {
		to = strconv.AppendInt(append(to, `,"queued":`...), int64(*e.Queued), 10)
	}
	to = appendText(to, `,"name":`, e.Name)
	if e.Mode != nil {
		to = line.AppendString(append(to, `,"mode":`...), e.Mode.String())
	}
	if e.Change != 0 {
		to = strconv.AppendUint(append(to, `,"change":`...), e.Change, 10)
	}
	if e.Token != nil {
		to = append(to, `,"token":"`...)
		to = append(strconv.AppendUint(to, uint64(*e.Token), 10), '"')
	}
	to = appendNumber(to, `,"host_id":`, int64(e.HostID))
	if e.LeaseMS != nil {
		to = strconv.AppendInt(append(to, `,"lease_ms":`...), *e.LeaseMS, 10)
	}
	if e.AtMS != nil {
		to = strconv.AppendInt(append(to, `,"at_ms":`...), *e.AtMS, 10)
	}
	to = appendNumber(to, `,"grace_ms":`, e.GraceMS)
	to = appendText(to, `,"witness":`, e.Witness)
	to = appendText(to, `,"code":`, e.Code)
	to = appendText(to, `,"message":`, e.Message)
	to = appendText(to, `,"hint":`, e.Hint)
	to = appendNumber(to, `,"host":`, int64(e.Host))
	to = appendText(to, `,"host_name":`, e.HostName)
	return append(to, '}', '\n')
}

// appendText adds a member unless it is empty, appendNumber unless it is zero.
func appendText(to []byte, name, s string) []byte {
	if s == "" {
		return to
	}
	return line.AppendString(append(to, name...), s)
}

func appendNumber(to []byte, name string, n int64) []byte {
	if n == 0 {
		return to
	}
	return strconv.AppendInt(append(to, name...), n, 10)
}
