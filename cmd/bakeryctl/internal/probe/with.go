package probe

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const (
	meetRounds = 200
	meetWait   = time.Minute // for the other host to start the check
)

// checkWith runs the coherence check: each of two hosts must see the writes of the other.
func (r *Report) checkWith(ctx context.Context, o Options) error {
	p := render.StartProgress(o.Stderr)
	defer p.Stop()
	p.Begin("checking with "+text.Printable(o.With), 0)
	self, err := r.servedBy(ctx, o.Socket)
	if err != nil {
		return err
	}
	if strings.Contains(o.With, "/") { // not the id or name of a host
		return r.meetSocket(ctx, o, self.ThisHost.ID)
	}
	return r.meetHost(ctx, o, self, p.Message)
}

// servedBy returns the report of a bakeryd, or an error if it serves another lockspace than the one on
// the device.
func (r *Report) servedBy(ctx context.Context, socket string) (*report.Report, error) {
	s, err := show.Ask(ctx, socket)
	switch {
	case err != nil:
		return nil, err
	case s.ThisHost == nil:
		return nil, &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("bakeryd at %s does not say which host it is", socket)}
	case r.space == nil || s.Lockspace.UUID != r.space.UUID:
		return nil, cli.Usage("probe", "bakeryd at %s serves the lockspace on %s, which is not on %s", socket, s.Lockspace.Device, r.Device)
	}
	return s, nil
}

// meetSocket runs the coherence check between two bakeryds of this machine, and reads both results.
func (r *Report) meetSocket(ctx context.Context, o Options, id int) error {
	other, err := r.servedBy(ctx, o.With)
	if err != nil {
		return err
	}
	if other.ThisHost.ID == id {
		return cli.Usage("probe", "--with %s is host %d, as is the bakeryd at %s: use another host", o.With, id, o.Socket)
	}
	var (
		both   [2]measuring.MeetReport
		wait   = meetWait / 3 // both run already
		socket = [2]string{o.Socket, o.With}
		peer   = [2]int{other.ThisHost.ID, id}
	)
	asking, ctx := errgroup.WithContext(ctx) // the error of one ends the other one's wait
	for i := range both {
		asking.Go(func() error { return askToMeet(ctx, socket[i], peer[i], wait, &both[i]) })
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	r.addMeetings(&both)
	return nil
}

// addMeetings adds the findings of both hosts. If the check did not start, both results together
// show which host does not see the other.
func (r *Report) addMeetings(both *[2]measuring.MeetReport) {
	for i := range both {
		me, you := &both[i], &both[1-i]
		r.Meetings = append(r.Meetings, me)
		f := meetingFinding(me)
		switch {
		case me.Outcome == measuring.MeetAbsent && me.PeerNonce == you.Nonce:
			// This host saw the other one, whose own finding says why it did not answer.
			f.Verdict, f.Detail, f.Remedy = OK, fmt.Sprintf("host %d sees what host %d writes", me.Host, me.Peer), ""
		case me.Outcome == measuring.MeetAbsent:
			f.Verdict, f.Detail = Unfit, fmt.Sprintf("host %d does not see what host %d writes", me.Host, me.Peer)
		}
		r.Findings = append(r.Findings, f)
	}
}

// meetHost runs the coherence check with another host, where the operator must run the same.
func (r *Report) meetHost(ctx context.Context, o Options, self *report.Report, say func(string)) error {
	h, err := show.FindHost(self, o.With)
	if err != nil {
		return err
	}
	if h.ID == self.ThisHost.ID {
		return cli.Usage("probe", "host %s is this host: use another host", o.With)
	}
	say(fmt.Sprintf("waiting up to %v for %s; run there: bakeryctl probe DEVICE --with %d", meetWait, show.HostLabel(h), self.ThisHost.ID))
	met := new(measuring.MeetReport)
	if err := askToMeet(ctx, o.Socket, h.ID, meetWait, met); err != nil {
		return err
	}
	switch met.Outcome {
	case measuring.MeetAbsent:
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("check with %s: nothing that it wrote for the check was seen within %v", show.HostLabel(h), meetWait),
			Hint: "run bakeryctl probe DEVICE --with " + strconv.Itoa(self.ThisHost.ID) + " there at the same time; if you did, one of the two hosts does not see the writes of the other"}
	case measuring.MeetEnded:
		return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("check with %s: not completed: %s", show.HostLabel(h), met.Detail), Hint: "run it again on both hosts"}
	}
	r.Meetings = append(r.Meetings, met)
	r.Findings = append(r.Findings, meetingFinding(met))
	return nil
}

func askToMeet(ctx context.Context, socket string, host int, wait time.Duration, answer *measuring.MeetReport) error {
	request := struct {
		Host      int   `json:"host"`
		Rounds    int   `json:"rounds"`
		TimeoutMS int64 `json:"timeout_ms"`
	}{host, meetRounds, wait.Milliseconds()}
	return call.Ask(ctx, socket, "POST", "/v1/meet", request, answer)
}

// meetingFinding returns the finding of one host about the writes of another.
func meetingFinding(m *measuring.MeetReport) Finding {
	f := Finding{ID: "meeting", Verdict: Unfit,
		Remedy: "switch off every cache between these hosts and the disk (qemu: cache=none; RBD: rbd cache = false)"}
	host := fmt.Sprintf("host %d (%s)", m.Host, text.Printable(m.Device))
	switch m.Outcome {
	case measuring.MeetFresh:
		f.Verdict, f.Remedy = OK, ""
		f.Detail = fmt.Sprintf("%s saw every write of host %d immediately: %d rounds in %.1f s, round trip %s, p99 %s",
			host, m.Peer, m.Rounds, float64(m.ElapsedMS)/1000, render.Millis(m.RoundTrip.P50), render.Millis(m.RoundTrip.P99))
	case measuring.MeetStale:
		f.Detail = fmt.Sprintf("%s read old contents %d times in %d rounds; %s", host, m.Stale, m.Rounds, m.Detail)
	case measuring.MeetEnded:
		f.Verdict, f.Remedy = Unknown, "see the finding of the other host, or run it again"
		f.Detail = fmt.Sprintf("%s: %s, after %d rounds", host, m.Detail, m.Rounds)
	default:
		f.Detail = fmt.Sprintf("%s: %s, after %d rounds", host, m.Detail, m.Rounds)
		f.Remedy = "if the bakeryd of that host was not stopped: " + f.Remedy
	}
	return f
}
