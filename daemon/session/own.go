package session

import (
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
)

// Own is a hold of bakeryd itself, for clients that it serves in another way.
type Own struct {
	*locks.Hold
	ID string // of its session, by which the next process continues it
	a  *Attachment
}

// own is the Subscriber of a hold of bakeryd itself.
type own chan *api.Event

func (own) Gone() bool      { return false }
func (own) Listening() bool { return false }
func (own) Close()          {}

func (o own) Send(e *api.Event) {
	if e.Kind == api.Granted || e.Kind == api.Refused {
		select {
		case o <- e:
		default: // it has its outcome
		}
	}
}

// Take requests a lock for bakeryd itself, or continues a hold if the request has its session and
// token. It blocks until the outcome, and returns the errors of Open and of a refusal. by is the
// user that it counts for, without a process. Nothing but Leave ends the hold, or the end of the
// process: then it lasts until the next process continues it, or its lease is over.
func (ss *Table) Take(body api.LockRequest, by Client) (*Own, error) {
	if body.Session == "" {
		body.Session = api.NewSessionID()
	}
	outcome := make(own, 1)
	a, err := ss.Open(body, by, outcome)
	if err != nil {
		return nil, err
	}
	a.Start()
	<-a.session.Done()
	if err := a.session.err; err != nil {
		return nil, err
	}
	if e := <-outcome; e.Kind == api.Refused {
		return nil, e.Err()
	}
	return &Own{Hold: a.session.hold, ID: body.Session, a: a}, nil
}

// Leave releases the hold. It returns when that is durable.
func (o *Own) Leave() { o.a.Leave() }

// LeaveOwn releases holds of the previous process's own that no call of Take has continued. which
// distinguishes them from those of clients that have not returned and whose process is not known.
func (ss *Table) LeaveOwn(which func(id, command string) bool) {
	all, _ := ss.list()
	for _, s := range all {
		if s.Detached() && s.decided() && s.Peer.PID == 0 && which(s.ID, s.req.Command) {
			const stay = 0 // none has continued it
			ss.tasks.Go(func() { s.release(stay, "the previous process had not used it yet") })
		}
	}
}
