package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev/probe"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const (
	meetRounds = 200
	meetWait   = time.Minute // for the other host to come
)

// probeWith has two hosts check that each sees what the other one writes.
func (a *app) probeWith(ctx context.Context, r *probeReport, with string) error {
	p := a.progress()
	defer p.stop()
	p.begin("checking with "+text.Printable(with), 0)
	self, err := statusOfDaemon(ctx, a.socket)
	if err == nil {
		err = servesIt(self, a.socket, r)
	}
	if err != nil {
		return err
	}
	if isSocket(with) {
		return a.meetSocket(ctx, r, self.ThisHost.ID, with)
	}
	return a.meetHost(ctx, r, self, with, p.sayer(a.stderr))
}

// servesIt refuses a bakeryd that is in another lockspace than the one on the device.
func servesIt(s *report.Report, socket string, r *probeReport) error {
	if s.ThisHost == nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("bakeryd at %s does not say which host it is", socket)}
	}
	if r.space == nil || s.Lockspace.UUID != r.space.UUID {
		return probeUsage("bakeryd at %s serves the lockspace on %s, which is not on %s", socket, s.Lockspace.Device, r.Device)
	}
	return nil
}

// meetSocket has two bakeryds of this machine meet, and hears both.
func (a *app) meetSocket(ctx context.Context, r *probeReport, id int, with string) error {
	other, err := statusOfDaemon(ctx, with)
	if err == nil {
		err = servesIt(other, with, r)
	}
	if err != nil {
		return err
	}
	if other.ThisHost.ID == id {
		return probeUsage("--with %s is host %d, as is the bakeryd at %s: want another one", with, id, a.socket)
	}
	var (
		both   [2]daemon.MeetReport
		wg     sync.WaitGroup
		wait   = meetWait / 3 // both are there
		socket = [2]string{a.socket, with}
		peer   = [2]int{other.ThisHost.ID, id}
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for i := range both {
		wg.Go(func() {
			if err := askToMeet(ctx, socket[i], peer[i], wait, &both[i]); err != nil {
				cancel(err) // the other one need not wait
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r.addMeetings(&both)
	return nil
}

// addMeetings says what the two hosts have found, knowing both: of two that have not met, who has seen whom.
func (r *probeReport) addMeetings(both *[2]daemon.MeetReport) {
	for i := range both {
		me, you := &both[i], &both[1-i]
		r.Meetings = append(r.Meetings, me)
		f := meetingFinding(me)
		switch {
		case me.Outcome == daemon.MeetAbsent && me.PeerNonce == you.Nonce:
			// It saw the other one, which has not answered: that one says why.
			f.Verdict, f.Detail, f.Remedy = probe.OK, fmt.Sprintf("host %d sees what host %d writes", me.Host, me.Peer), ""
		case me.Outcome == daemon.MeetAbsent:
			f.Verdict, f.Detail = probe.Unfit, fmt.Sprintf("host %d does not see what host %d writes", me.Host, me.Peer)
		}
		r.Findings = append(r.Findings, f)
	}
}

// meetHost has this host's bakeryd meet another, where somebody has to do the same.
func (a *app) meetHost(ctx context.Context, r *probeReport, self *report.Report, with string, say func(string)) error {
	h, err := findHost(self, with)
	if err != nil {
		return err
	}
	if h.ID == self.ThisHost.ID {
		return probeUsage("host %s is this host: want another one", with)
	}
	say(fmt.Sprintf("waiting up to %v for %s; run there: bakeryctl probe DEVICE --with %d", meetWait, hostLabel(h), self.ThisHost.ID))
	report := new(daemon.MeetReport)
	if err := askToMeet(ctx, a.socket, h.ID, meetWait, report); err != nil {
		return err
	}
	switch report.Outcome {
	case daemon.MeetAbsent:
		return &failure{code: exitUnavailable, err: fmt.Errorf("%s was not met: nothing that it writes for it was seen for %v", hostLabel(h), meetWait),
			hint: "run bakeryctl probe DEVICE --with " + strconv.Itoa(self.ThisHost.ID) + " there at the same time; if that was done, one of the two does not see what the other writes"}
	case daemon.MeetEnded:
		return &failure{code: exitUnavailable, err: fmt.Errorf("the check with %s has come to no end: %s", hostLabel(h), report.Detail), hint: "begin again on both"}
	}
	r.Meetings = append(r.Meetings, report)
	r.Findings = append(r.Findings, meetingFinding(report))
	return nil
}

func askToMeet(ctx context.Context, socket string, host int, wait time.Duration, answer *daemon.MeetReport) error {
	request := struct {
		Host      int   `json:"host"`
		Rounds    int   `json:"rounds"`
		TimeoutMS int64 `json:"timeout_ms"`
	}{host, meetRounds, wait.Milliseconds()}
	return ask(ctx, socket, http.MethodPost, "/v1/meet", request, answer)
}

// meetingFinding says what one host found of another's writes.
func meetingFinding(m *daemon.MeetReport) probe.Finding {
	f := probe.Finding{ID: "meeting", Verdict: probe.Unfit,
		Remedy: "switch off every cache between these hosts and the disk (qemu: cache=none; RBD: rbd cache = false)"}
	who := fmt.Sprintf("host %d (%s)", m.Host, text.Printable(m.Device))
	switch m.Outcome {
	case daemon.MeetFresh:
		f.Verdict, f.Remedy = probe.OK, ""
		f.Detail = fmt.Sprintf("%s saw every write of host %d at once: %d rounds in %.1f s, round trip %s, p99 %s",
			who, m.Peer, m.Rounds, float64(m.ElapsedMS)/1000, millis(m.RoundTrip.P50), millis(m.RoundTrip.P99))
	case daemon.MeetStale:
		f.Detail = fmt.Sprintf("%s was shown old contents %d times in %d rounds; %s", who, m.Stale, m.Rounds, m.Detail)
	case daemon.MeetEnded:
		f.Verdict, f.Remedy = probe.Unknown, "see what the other host says, or begin again"
		f.Detail = fmt.Sprintf("%s: %s, after %d rounds", who, m.Detail, m.Rounds)
	default:
		f.Detail = fmt.Sprintf("%s: %s, after %d rounds", who, m.Detail, m.Rounds)
		f.Remedy = "if the bakeryd of that host was not stopped: " + f.Remedy
	}
	return f
}
