package server

import (
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/access"
)

// call is a call of the socket, and the action that it counts as.
type call struct {
	pattern string
	action  access.Action
	answer  http.HandlerFunc
}

// calls returns the calls that do more than read, and those that are served only on the socket.
func (s *Server) calls() []call {
	return []call{
		{"POST /v1/lock", access.Lock, s.whenJoined(s.lock)},
		{"GET " + linkPath, access.Lock, s.link},                  // checked for each line
		withBody(s, "POST /v1/contain", access.Change, s.contain), // of a session
		withBody(s, "POST /v1/create", access.Create, s.create),
		withBody(s, "POST /v1/remove", access.Remove, s.remove),
		withBody(s, "POST /v1/evict", access.Evict, s.evict),
		withBody(s, "POST /v1/meet", access.Meet, s.meet),
		withBody(s, "POST /v1/floor", access.Floor, s.floor),
		withBody(s, "POST /v1/request", access.Request, s.request),
		withBody(s, "POST /v1/mode", access.Change, s.mode),
		withBody(s, "POST /v1/value", access.Change, s.setValue),
		{"GET /v1/value", access.Look, s.withoutBody(s.value)},
	}
}

// withBody returns a call with a body. It decodes the body, and checks the access to what that asks
// for.
func withBody[B any](s *Server, pattern string, action access.Action, answer func(Host, *http.Request, *B) (any, error)) call {
	return call{pattern, action, s.withoutBody(func(host Host, r *http.Request) (any, error) {
		body := new(B)
		if err := decode(r, action, body); err != nil {
			return nil, err
		}
		return answer(host, r, body)
	})}
}

// withoutBody returns the handler of a call whose answer is not a stream.
func (s *Server) withoutBody(answer func(Host, *http.Request) (any, error)) http.HandlerFunc {
	return s.whenJoined(func(host Host, w http.ResponseWriter, r *http.Request) {
		v, err := answer(host, r)
		if err != nil {
			refuse(w, err)
			return
		}
		writeJSON(w, v)
	})
}

// register registers all calls. No call exists that is neither in calls nor in looks.
func (s *Server) register(mux *http.ServeMux) {
	for _, c := range s.calls() {
		mux.HandleFunc(c.pattern, c.answer)
	}
	s.looks(mux)
}

// Actions returns the actions of the calls that do more than read, by their patterns.
func (s *Server) Actions() map[string]access.Action {
	actions := map[string]access.Action{}
	for _, c := range s.calls() {
		actions[c.pattern] = c.action
	}
	return actions
}
