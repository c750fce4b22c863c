package area

import (
	"context"
	"time"
)

// A request that the disk does not answer keeps a thread and a descriptor until it does. Further
// ones are refused then.
const (
	maxHungOfPath = 4
	maxHungOfUser = 64 // which may make any number of paths that hang
)

// request is a call of a method of Areas.
type request struct {
	peer   Peer
	kind   Kind
	path   string
	offset uint64
	write  bool
	began  time.Time
}

// run finds the file of a request and calls work, with the rights of the peer. It returns when work
// has, or after the limit. Then work continues, and its result is lost.
func run[T any](ctx context.Context, a *Areas, r request, work func(*file) (T, error)) (none T, err error) {
	id, err := a.begin(r)
	if err != nil {
		return none, r.fail(err)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := perform(r, work)
		a.end(id)
		done <- result{value, err}
	}()
	timer := time.NewTimer(a.limit)
	defer timer.Stop()
	select {
	case res := <-done:
		if res.err != nil {
			return none, r.fail(res.err)
		}
		return res.value, nil
	case <-timer.C:
		return none, r.fail(failure(codeTimeout, "no answer within %v; check the device and its paths", a.limit))
	case <-ctx.Done():
		return none, r.fail(failure(codeTimeout, "no answer: %w", context.Cause(ctx)))
	}
}

// perform does the work of run. It ends this thread if the peer has other rights than this process.
func perform[T any](r request, work func(*file) (T, error)) (none T, err error) {
	if err := r.peer.takeRights(); err != nil {
		return none, err
	}
	f, err := find(r.path)
	if err != nil {
		return none, r.cannotOpen(err)
	}
	defer f.close()
	return work(f)
}

// begin returns a number for a request, or refuses it while too many of the same path or user hang.
// It refuses a write while any of the path does, because a write that hangs may land later, and
// then replace the new one.
func (a *Areas) begin(r request) (id uint64, err error) {
	r.began = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	ofPath, ofUser := 0, 0
	for _, h := range a.requests {
		if r.began.Sub(h.began) >= a.limit && h.path == r.path {
			ofPath++
		}
		if r.began.Sub(h.began) >= a.limit && h.peer.UID == r.peer.UID {
			ofUser++
		}
	}
	if ofPath >= maxHungOfPath || ofUser >= maxHungOfUser || r.write && ofPath > 0 {
		return 0, failure(codeTimeout, "no answer to %d earlier requests for it, and to %d of user %d; check the device and its paths",
			ofPath, ofUser, r.peer.UID)
	}
	a.last++
	a.requests[a.last] = r
	return a.last, nil
}

// end counts a request as answered.
func (a *Areas) end(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.requests, id)
}
