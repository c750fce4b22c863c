package top

import (
	"context"
	"errors"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/test/calltest"
	"github.com/bakeryd/bakeryd/test/showtest"
)

// lockNames returns the names of the locks in display order.
func lockNames(m model) (names []string) {
	for _, r := range m.locks {
		names = append(names, m.answer.Report.Locks[r.i].Name)
	}
	return names
}

func TestModel_KeyS_ChangesTheOrder(t *testing.T) {
	m := aModel(80, 24)
	require.Equal(t, []string{"deploy", "nightly-backup", "reboot", "catalogue"}, lockNames(m), "by need")
	m = press(m, "s")
	require.Equal(t, []string{"catalogue", "deploy", "nightly-backup", "reboot"}, lockNames(m), "by name")
	m = press(m, "s")
	require.Equal(t, []string{"nightly-backup", "deploy", "reboot", "catalogue"}, lockNames(m), "by waiters")
	m = press(m, "s")
	require.Equal(t, []string{"nightly-backup", "deploy", "reboot", "catalogue"}, lockNames(m), "by age")
	require.Equal(t, byNeed, press(m, "s").order)
}

func TestModel_Changes_KeepTheSelection(t *testing.T) {
	m := press(aModel(80, 24), "down", "down")
	require.Equal(t, rowID{true, 4}, m.at)
	require.Equal(t, rowID{true, 4}, press(m, "s").at, "in another order")
	r := showtest.Report()
	r.Locks = append([]report.Lock{{Name: "aaa", Number: 9, Holders: r.Locks[1].Holders}}, r.Locks...)
	require.Equal(t, rowID{true, 4}, m.update(anAnswer(r), nil, noon).at, "with one more above it")
	r = showtest.Report()
	r.Locks = r.Locks[:2]
	require.Equal(t, rowID{true, 2}, m.update(anAnswer(r), nil, noon).at, "the selected row is gone: the first row is selected")
	require.Equal(t, rowID{false, 3}, press(m, "tab").at)
	require.Equal(t, rowID{true, 2}, press(m, "tab", "tab").at)
	require.Equal(t, rowID{false, 3}, press(m, "home").at, "hosts come first")
	require.Equal(t, rowID{true, 1}, press(m, "home", "end", "down").at)
	fresh := aModel(80, 24).update(anAnswer(r), nil, noon)
	require.Equal(t, rowID{true, 2}, fresh.at, "no key was pressed: the first lock is selected")
	require.Equal(t, rowID{}, press(model{}, "down", "enter", "tab", "end").at, "nothing is there")
}

func TestModel_Filter_MatchesWords(t *testing.T) {
	find := func(words ...string) []string {
		return lockNames(press(aModel(80, 24), append([]string{"/"}, words...)...))
	}
	require.Equal(t, []string{"nightly-backup"}, find("B", "x", "backspace", "A"), "capitals do not count")
	require.Equal(t, []string{"nightly-backup"}, find("7", "0", "0", "1"), "by pid")
	m := press(aModel(80, 24), "/", "q", "enter")
	require.Equal(t, "q", m.filter)
	require.False(t, m.typing)
	require.Equal(t, "", press(m, "esc").filter)
	require.Equal(t, "", press(m, "/", "esc").filter)
	m, then := press(m, "/").key("q", "q")
	require.Nil(t, then, "a letter of the filter")
	m, _ = m.key("", "\x1b[2J\nx")
	require.Equal(t, "qq[2Jx", m.filter, "nothing that controls a terminal")
	_, then = m.key("ctrl+c", "")
	require.Equal(t, tea.QuitMsg{}, then)
}

func TestModel_Paused_ShowsNothingNew(t *testing.T) {
	m := press(aModel(80, 24), "p")
	before := m.view(false, render.Fine)
	m = m.tick(noon.Add(time.Minute)).update(nil, errors.New("gone"), noon.Add(time.Minute))
	m = m.addEvent(events.Event{Seq: 9, Kind: events.Dead, Host: 3})
	require.Equal(t, before, m.view(false, render.Fine))
	m, then := m.key("p", "p")
	require.Equal(t, readNow{}, then)
	require.Equal(t, events.Dead, m.events[0].Kind, "the event during the pause")
}

func TestModel_NoAnswer_ShowsSinceWhen(t *testing.T) {
	m := aModel(120, 24)
	m = m.update(nil, errors.New("refused"), noon.Add(time.Second)).update(nil, errors.New("no such file"), noon.Add(7*time.Second))
	require.Equal(t, noon.Add(time.Second), m.since)
	found := m.problems()
	require.Len(t, found, 1, "earlier problems may be over")
	require.Equal(t, "no answer for 6 s, since 12:00:01: no such file", show.ProblemText(found[0]))
	require.Contains(t, found[0].Remedy, "its lease ends in 20 s")
	require.Equal(t, int64(21_000), *m.answer.Report.Hosts[2].Aged(m.known()).SilentMS, "it may have renewed since")
	m = m.update(nil, &notReady{Message: "joining"}, noon.Add(9*time.Second))
	require.Equal(t, noon.Add(time.Second), m.since, "there is still nothing to show")
	m = m.update(anAnswer(showtest.Report()), nil, noon.Add(12*time.Second))
	require.NoError(t, m.failed)
	require.NotContains(t, m.view(false, render.Fine), "no answer")
}

func TestModel_ShortOutage_IsAWarning(t *testing.T) {
	m := aModel(80, 24).update(nil, errors.New("refused"), noon.Add(time.Second))
	require.Equal(t, report.SeverityWarning, m.problems()[0].Severity)
	require.Equal(t, report.SeverityError, m.tick(noon.Add(10 * time.Second)).problems()[0].Severity)
}

func TestModel_Problems_AreShownWithTheirRemedies(t *testing.T) {
	a := anAnswer(showtest.Report())
	a.Report.Problems = []report.Problem{
		{Severity: report.SeverityError, Text: "lock deploy is stuck", Why: "held by host 3 (db3)"},
		{Severity: report.SeverityWarning, Text: "host 2 (db2) is dead", Why: "its locks are free", Remedy: "start it again"},
		{Severity: report.SeverityNote, Text: "lock reboot is kept", Remedy: "it is released"},
	}
	require.Contains(t, model{now: noon, width: 200, height: 40}.update(a, nil, noon).view(false, render.Fine), `
bad     lock deploy is stuck: held by host 3 (db3)
warn    host 2 (db2) is dead: its locks are free · start it again
note    lock reboot is kept · it is released
`)
	r := showtest.Report()
	r.Hosts, r.Locks = r.Hosts[:2], r.Locks[2:]
	require.Empty(t, model{now: noon}.update(anAnswer(r), nil, noon).problems(), "all is well")
}

func TestSocketSource_Read(t *testing.T) {
	t.Parallel()
	read := func(text string) (*report.Glance, error) {
		return socketSource{calltest.Serve(t, 200, text).Socket}.read(t.Context())
	}
	a, err := read(`{"at":"2026-11-21T12:00:00Z","read":{"ago_ms":5},"report":{"lockspace":{"lease_ms":1},"this_host":{"id":1,
		"io":{"read":{"p50_us":200,"p99_us":900,"max_us":5000,"count":7,"errors":2},"write":{"p50_us":0,"count":0},"oldest_ms":1500},"renewals":{"p50_us":3000,"count":1}}}}`)
	require.NoError(t, err)
	require.Equal(t, []speed{{"read", report.Latency{Count: 7, Errors: 2, P50US: 200, P99US: 900, MaxUS: 5000}}, {"renewal", report.Latency{Count: 1, P50US: 3000}}},
		speedsOf(a.Report), "no writes yet")
	a, err = read(`{"report":{"this_host":{"id":1,"io":null}}}`)
	require.NoError(t, err, "a bakeryd that reports no latencies")
	require.Empty(t, speedsOf(a.Report))
	a, err = read(`{"report":{"lockspace":{"lease_ms":1},"this_host":{"id":1,"state":"leaving","lease_left_ms":1}}}`)
	require.NoError(t, err)
	require.Equal(t, "this host is leaving the lockspace", a.Report.Problems[0].Text, "of a bakeryd that does not judge")
	_, err = read(`{"error":{"message":"joining","hint":"wait"}}`)
	require.Equal(t, &cli.Failure{Code: cli.ExitUnavailable, Err: &notReady{Message: "joining", Hint: "wait"}, Hint: "wait"}, err)
	for _, text := range []string{`{}`, `[]`, `{"report":7}`, ``} {
		_, err := read(text)
		require.Error(t, err, text)
	}
}

func TestDeviceSource_NoRenewal_IsSilent(t *testing.T) {
	s := &deviceSource{}
	var problems []report.Problem
	look := func(at time.Duration, sequence uint64) report.Host {
		r := &report.Report{Lockspace: report.Lockspace{LeaseMS: 30_000}, Hosts: []report.Host{{ID: 1, Health: report.HealthLive, Sequence: sequence}}}
		s.watch(r, noon.Add(at))
		problems = r.Problems
		return r.Hosts[0]
	}
	require.Nil(t, look(0, 1).SilentMS, "not known after one read")
	h := look(10*time.Second, 1)
	require.Equal(t, int64(10_000), *h.SilentMS)
	require.Equal(t, report.HealthLive, h.Health)
	require.Equal(t, report.HealthSilent, look(16*time.Second, 1).Health)
	require.Equal(t, "host 1 is silent", problems[0].Text)
	h = look(17*time.Second, 2)
	require.Equal(t, report.HealthLive, h.Health)
	require.Zero(t, *h.SilentMS)
	require.Empty(t, problems)
}

func TestSocketSource_BakerydRestarts_FollowsEvents(t *testing.T) {
	t.Parallel()
	first := calltest.Serve(t, 200, `{"seq":"5","at":"2026-11-21T12:00:00Z","kind":"joined","host":1}`+"\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []events.Event
	var gone []error
	socketSource{first.Socket}.follow(ctx, func(msg tea.Msg) {
		switch msg := msg.(type) {
		case events.Event:
			got = append(got, msg)
		case eventsGone:
			if gone = append(gone, msg.err); len(gone) == 4 { // each stream starts and ends
				cancel()
			}
		}
	})
	require.Len(t, got, 1, "no event is shown twice")
	require.NoError(t, gone[0])
	require.Error(t, gone[1])
	require.NoError(t, gone[2])
	require.Equal(t, "GET /v1/events?follow=1&limit=200", <-first.Asked)
	require.Equal(t, "GET /v1/events?follow=1&limit=200&since=5", <-first.Asked)
}
