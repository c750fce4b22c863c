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
		{"POST /v1/contain", access.Change, withBody(s, s.contain)}, // of a session
		{"GET " + linkPath, access.Lock, s.link},                    // checked for each line
		{"POST /v1/create", access.Create, withBody(s, s.create)},
		{"POST /v1/remove", access.Remove, withBody(s, s.remove)},
		{"POST /v1/evict", access.Evict, withBody(s, s.evict)},
		{"POST /v1/meet", access.Meet, withBody(s, s.meet)},
		{"POST /v1/floor", access.Floor, withBody(s, s.floor)},
		{"POST /v1/request", access.Request, withBody(s, s.request)},
		{"POST /v1/mode", access.Change, withBody(s, s.mode)},
		{"POST /v1/value", access.Change, withBody(s, s.setValue)},
		{"GET /v1/value", access.Look, s.withoutBody(s.value)},
	}
}

// withBody returns the handler of a call with a body, which it decodes.
func withBody[B any](s *Server, call func(Host, *http.Request, *B) (answer any, err error)) http.HandlerFunc {
	return s.withoutBody(func(host Host, r *http.Request) (any, error) {
		body := new(B)
		if err := decode(r, body); err != nil {
			return nil, err
		}
		return call(host, r, body)
	})
}

// withoutBody returns the handler of a call whose answer is not a stream.
func (s *Server) withoutBody(call func(Host, *http.Request) (answer any, err error)) http.HandlerFunc {
	return s.whenJoined(func(host Host, w http.ResponseWriter, r *http.Request) {
		answer, err := call(host, r)
		if err != nil {
			refuse(w, err)
			return
		}
		writeJSON(w, answer)
	})
}

// register registers all calls. No call exists that is neither in calls nor in looks.
func (s *Server) register(mux *http.ServeMux) {
	for _, c := range s.calls() {
		mux.HandleFunc(c.pattern, s.as(c.action, c.answer))
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
