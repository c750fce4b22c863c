package daemon

import (
	"net/http"

	"github.com/bakeryd/bakeryd/daemon/access"
)

// call is one that the socket answers, and what it is to make it.
type call struct {
	pattern string
	action  access.Action
	answer  http.HandlerFunc
}

// calls are all that do more than look, and what of the looks is not for everywhere.
func (s *Server) calls() []call {
	return []call{
		{"POST /v1/lock", access.Lock, s.whenJoined(s.lock)},
		{"POST /v1/contain", access.Change, s.whenJoined(s.contain)}, // the session says whose
		{"GET " + linkPath, access.Lock, s.link},                     // each line of it
		{"POST /v1/create", access.Create, s.whenJoined(s.create)},
		{"POST /v1/remove", access.Remove, s.whenJoined(s.remove)},
		{"POST /v1/evict", access.Evict, s.whenJoined(s.evict)},
		{"POST /v1/meet", access.Meet, s.whenJoined(s.meet)},
		{"POST /v1/floor", access.Floor, s.whenJoined(s.floor)},
		{"POST /v1/request", access.Request, s.whenJoined(s.request)},
		{"POST /v1/mode", access.Change, s.whenJoined(s.mode)},
		{"POST /v1/value", access.Change, s.whenJoined(s.setValue)},
		{"GET /v1/value", access.Look, s.whenJoined(s.value)},
	}
}

// register is the one place where calls become such: what is not in calls or looks there is not.
func (s *Server) register(mux *http.ServeMux) {
	for _, c := range s.calls() {
		mux.HandleFunc(c.pattern, s.as(c.action, c.answer))
	}
	s.looks(mux)
}
