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
		{"POST /v1/contain", access.Change, s.whenJoined(s.contain)}, // of a session
		{"GET " + linkPath, access.Lock, s.link},                     // checked for each line
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
