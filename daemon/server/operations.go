//go:build packaging

package server

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// Operation is a call of the API as its OpenAPI document describes it: see package schema.
type Operation struct {
	Pattern             string
	Summary             string
	Result              string
	Text                string
	Query, Body, Answer any
	Media               string
	Refusals            []string
	Link                bool
}

// About is what the OpenAPI document says about all calls.
const About = "The calls of bakeryd on its Unix socket. The guide api.md has examples. Clients must ignore members that they do not know, " +
	"and expect values of x-extensible-enum that they do not know. The address of --listen serves those that only read."

const ndjson = "application/x-ndjson"

// eventsParameters are those of GET /v1/events.
type eventsParameters struct {
	Name   string    `json:"name"`                                                         // only events of this lock
	Since  string    `json:"since" jsonschema:"pattern=^[0-9]+$"`                          // only events with a greater seq
	From   time.Time `json:"from"`                                                         // only events from this time on
	Until  time.Time `json:"until"`                                                        // only events before this time
	Limit  int       `json:"limit" jsonschema:"minimum=0,maximum=10000"`                   // only the last events, at most this number; 0: all
	Follow bool      `json:"follow" jsonschema:"oneof_type=boolean;integer,default=false"` // 1: the stream continues with new events, in batches
}

// lockParameter is that of calls about a lock.
type lockParameter struct {
	Name string `json:"name" jsonschema:"required,minLength=1,maxLength=128"` // of the lock
}

// Operations returns all calls. A test compares them with the routes.
func Operations() []Operation {
	return []Operation{
		{Pattern: "POST /v1/lock", Summary: "Hold a lock as long as the connection is open",
			Result: "the events of the request and of the hold, a line for each; a refusal during the wait is one of them",
			Text: "The answer is a stream with a line for each event. It ends after the events refused and lost. The lock is released when the " +
				"client closes the connection. The lock is created on first use.",
			Body: api.LockRequest{}, Answer: api.Event{}, Media: ndjson,
			Refusals: []string{api.CodeFull, api.CodePermits, api.CodeLost}},
		{Pattern: "GET /v1/link", Summary: "Take locks one after the other over one connection",
			Text: "The request has the headers Connection: Upgrade and Upgrade: bakery-link/1. Afterwards the client sends lines of x-client-line, " +
				"one of the members lock, confirm and unlock each, and bakeryd sends lines of x-server-line.",
			Body: linkRequest{}, Answer: api.Event{}, Media: ndjson, Link: true},
		{Pattern: "GET /v1/status", Summary: "Describe hosts, locks, holders, waiters, and what is wrong",
			Result: "the state of the lockspace as this host sees it", Answer: report.Report{}},
		{Pattern: "GET /v1/locks", Summary: "List the locks in the directory",
			Result: "the locks, by name", Answer: directory.Listing{}},
		{Pattern: "POST /v1/create", Summary: "Create a lock",
			Result: "the lock, which exists now", Text: "If the lock exists with the same number of permits, nothing changes.",
			Body: createRequest{}, Answer: createAnswer{}, Refusals: []string{api.CodeFull, api.CodePermits}},
		{Pattern: "POST /v1/remove", Summary: "Remove a lock when no client holds it",
			Result: "the lock is removed",
			Body:   removeRequest{}, Answer: named{}, Refusals: []string{api.CodeMissing, api.CodeBusy, api.CodeTimeout, api.CodeValue}},
		{Pattern: "POST /v1/contain", Summary: "Move the calling process into the cgroup of a session's command",
			Result: "the calling process is in the cgroup",
			Text:   "The process must be in the cgroup of the client, and the session have witness or confirm.",
			Body:   containRequest{}, Answer: struct{}{}, Refusals: []string{api.CodeLost}},
		{Pattern: "POST /v1/mode", Summary: "Change the mode of a hold",
			Result: "the hold has the mode", Text: "The request for the current mode is no error.",
			Body: modeRequest{}, Answer: modeAnswer{}, Refusals: []string{api.CodeUpgrade, api.CodeLost}},
		{Pattern: "POST /v1/value", Summary: "Set the value of a lock under an exclusive hold",
			Result: "the value is on the disk",
			Body:   valueRequest{}, Answer: valueSet{}, Refusals: []string{api.CodeLost}},
		{Pattern: "GET /v1/value", Summary: "Read the value of a lock",
			Result: "the value; null if there is none", Query: lockParameter{}, Answer: locks.Value{}, Refusals: []string{api.CodeMissing}},
		{Pattern: "GET /v1/blocker", Summary: "Say what a client that requests a lock waits for",
			Result: "what such a client waits for, in words", Query: lockParameter{}, Answer: blockerAnswer{}},
		{Pattern: "POST /v1/request", Summary: "Ask the holders of a lock to release it",
			Result: "the holders were sent the request",
			Body:   requestRequest{}, Answer: requestAnswer{}, Refusals: []string{api.CodeFree, api.CodeMissing}},
		{Pattern: "GET /v1/events", Summary: "Read the event journal",
			Result: "the events, a line for each, the oldest first",
			Query:  eventsParameters{}, Answer: events.Event{}, Media: ndjson},
		{Pattern: "POST /v1/evict", Summary: "Declare a silent host dead, or ask a live one to leave",
			Result: "the host is declared dead, or was asked to leave",
			Body:   evictRequest{}, Answer: evictAnswer{}},
		{Pattern: "POST /v1/meet", Summary: "Check with another host that both see each other's writes",
			Result: "what this host has seen of the other one",
			Body:   meetRequest{}, Answer: measuring.MeetReport{}, Refusals: []string{api.CodeCoherenceCheck, api.CodeFull}},
		{Pattern: "POST /v1/floor", Summary: "Measure the requests that the device needs for a free lock",
			Result: "the durations of the requests, by round",
			Body:   floorRequest{}, Answer: measuring.Floor{}, Refusals: []string{api.CodeMissing}},
		{Pattern: "GET /metrics", Summary: "Metrics for Prometheus",
			Result: "the metrics in the text format of Prometheus", Media: "text/plain"},
		{Pattern: "GET /", Summary: "The status page, for browsers",
			Result: "the page in HTML", Media: "text/html"},
		{Pattern: "GET /page/status", Summary: "The state that the status page shows",
			Result: "the state, in short", Text: "It is made for that page, and may change at any time.",
			Answer: report.Glance{}},
	}
}
