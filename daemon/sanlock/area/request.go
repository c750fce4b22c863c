package area

import (
	"context"
	"time"
)

// A request that the disk does not answer keeps a thread and a descriptor until it does. Further ones are refused then.
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
	ended  bool // guarded by Areas.mu
}

// run finds the file of a request and calls work, with the rights of the peer. It returns when work has, or after the
// limit. Then work continues, and its result is lost.
func run[T any](ctx context.Context, a *Areas, r *request, work func(*file) (T, error)) (value T, err error) {
	if err := a.begin(r); err != nil {
		return value, r.fail(err)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := perform(r, work)
		a.end(r)
		done <- result{value, err}
	}()
	timer := time.NewTimer(a.limit)
	defer timer.Stop()
	select {
	case res := <-done:
		if res.err != nil {
			return res.value, r.fail(res.err)
		}
		return res.value, nil
	case <-timer.C:
		err = failure(codeTimeout, "no answer within %v; check the device and its paths", a.limit)
	case <-ctx.Done():
		err = failure(codeTimeout, "no answer: %w", context.Cause(ctx))
	}
	a.abandon(r)
	return value, r.fail(err)
}

// perform does the work of run, and ends this thread if the peer has other rights than this process.
func perform[T any](r *request, work func(*file) (T, error)) (none T, err error) {
	if err := r.peer.takeRights(); err != nil {
		return none, r.cannotOpen(err)
	}
	f, err := find(r.path)
	if err != nil {
		return none, r.cannotOpen(err)
	}
	defer f.close()
	return work(f)
}

// begin refuses a request while too many of the same path or user hang. It refuses a write while any of the path does,
// because a write that hangs may land later, and then replace the new one.
func (a *Areas) begin(r *request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ofPath, ofUser := 0, 0
	for h := range a.hung {
		if h.path == r.path {
			ofPath++
		}
		if h.peer.UID == r.peer.UID {
			ofUser++
		}
	}
	if ofPath >= maxHungOfPath || ofUser >= maxHungOfUser || r.write && ofPath > 0 {
		return failure(codeTimeout, "no answer to %d earlier requests for it, and to %d of user %d; check the device and its paths",
			ofPath, ofUser, r.peer.UID)
	}
	return nil
}

// abandon counts a request as hung.
func (a *Areas) abandon(r *request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !r.ended {
		a.hung[r] = true
	}
}

// end counts a request as answered.
func (a *Areas) end(r *request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.ended = true
	delete(a.hung, r)
}
