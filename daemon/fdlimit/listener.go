package fdlimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/daemon/warn"
)

// Listener accepts connections while there are descriptors for them, and refuses the others with a reason.
type Listener struct {
	net.Listener
	log         *slog.Logger
	descriptors *Budget
	tally       *tally.Tally
	refused     chan struct{} // has an element for each refused client that is waited for
	failing     warn.Limiter  // owned by the goroutine that accepts, as full is
	full        warn.Limiter
}

// NewListener returns a listener that accepts the connections of ln within a budget.
func NewListener(ln net.Listener, log *slog.Logger, t *tally.Tally, d *Budget) *Listener {
	return &Listener{Listener: ln, log: log, descriptors: d, tally: t, refused: make(chan struct{}, Refusing)}
}

// Accept returns a connection that has taken a descriptor. After an error net/http pauses before it tries again.
func (k *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := k.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) && k.failing.Allow() {
				k.log.Warn("accepting a connection failed, retrying", "err", err)
			}
			return nil, err
		}
		err = k.descriptors.takeFor(conn)
		if err == nil {
			return conn, nil
		}
		if k.full.Allow() {
			k.log.Warn("too many clients, refusing one", "descriptors", k.descriptors.Limit, "err", err)
		}
		select {
		case k.refused <- struct{}{}:
			go func() {
				k.refuse(conn, err, refusalTimeout)
				<-k.refused
			}()
		default:
			k.refuse(conn, err, 0)
		}
	}
}

// refuse sends a client the reason why it is not served. A client that is still writing its request when the connection
// is closed cannot read the answer; therefore its request is read for that time.
func (k *Listener) refuse(conn net.Conn, why error, timeout time.Duration) {
	defer conn.Close()
	e := api.ErrorOf(why)
	k.tally.Refused.Add(e.Code)
	body, err := json.Marshal(map[string]*api.Error{"error": e})
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(max(timeout, 100*time.Millisecond))) // the answer fits into the buffer
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(body), body)
	if c, ok := conn.(*net.UnixConn); ok && err == nil && timeout > 0 {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(c, drained))
	}
}
