package probe

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/client"
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
	wait := meetWait / 3 // both run already
	var here, there measuring.MeetReport
	asking, ctx := errgroup.WithContext(ctx) // the error of one ends the other one's wait
	asking.Go(func() error { return askToMeet(ctx, o.Socket, other.ThisHost.ID, wait, &here) })
	asking.Go(func() error { return askToMeet(ctx, o.With, id, wait, &there) })
	if err := asking.Wait(); err != nil {
		return err
	}
	r.addMeeting(&here, there.Nonce)
	r.addMeeting(&there, here.Nonce)
	return nil
}

// meetHost runs the coherence check with another host, where the operator must run the same.
func (r *Report) meetHost(ctx context.Context, o Options, self *report.Report, say func(string)) error {
	h, err := show.FindHost(self, o.With)
	if err != nil {
		if _, statErr := os.Stat(o.With); statErr == nil {
			return cli.Usage("probe", "--with %q is no host: want a socket with a slash, ./%s", o.With, o.With)
		}
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
	r.addMeeting(met, met.PeerNonce)
	return nil
}

func askToMeet(ctx context.Context, socket string, host int, wait time.Duration, answer *measuring.MeetReport) error {
	limit := wait + meetWait/2
	ctx, cancel := context.WithTimeoutCause(cli.Patience{}.With(ctx), limit, fmt.Errorf("%w within %v", client.ErrNoAnswer, limit)) // it waits for the other host
	defer cancel()
	request := map[string]any{"host": host, "rounds": meetRounds, "timeout_ms": wait.Milliseconds()}
	return call.Ask(ctx, socket, "POST", "/v1/meet", request, answer)
}

// meetingID is the id of the finding of a coherence check.
const meetingID = "meeting"

// addMeeting adds what one host says about the writes of another, and rates it. nonce is that of the
// other host: if the check did not start, it shows which host does not see the other.
func (r *Report) addMeeting(m *measuring.MeetReport, nonce uint64) {
	const (
		id     = meetingID
		remedy = "switch off every cache between these hosts and the disk (qemu: cache=none; RBD: rbd cache = false)"
		lost   = "if the bakeryd of that host was not stopped: " + remedy
	)
	r.Meetings = append(r.Meetings, m)
	host := fmt.Sprintf("host %d (%s)", m.Host, text.Printable(m.Device))
	ended := fmt.Sprintf("%s: %s, after %d rounds", host, m.Detail, m.Rounds)
	switch {
	case m.Outcome == measuring.MeetFresh:
		r.add(id, OK, fmt.Sprintf("%s saw every write of host %d immediately: %d rounds in %.1f s, round trip %s, p99 %s", host, m.Peer,
			m.Rounds, float64(m.ElapsedMS)/1000, render.Millis(m.RoundTrip.P50), render.Millis(m.RoundTrip.P99)), "")
	case m.Outcome == measuring.MeetStale:
		r.add(id, Unfit, fmt.Sprintf("%s read old contents %d times in %d rounds; %s", host, m.Stale, m.Rounds, m.Detail), remedy)
	case m.Outcome == measuring.MeetAbsent && m.PeerNonce == nonce:
		// This host saw the other one, whose own finding says why it did not answer.
		r.add(id, OK, fmt.Sprintf("host %d sees what host %d writes", m.Host, m.Peer), "")
	case m.Outcome == measuring.MeetAbsent:
		r.add(id, Unfit, fmt.Sprintf("host %d does not see what host %d writes", m.Host, m.Peer), lost)
	case m.Outcome == measuring.MeetEnded:
		r.add(id, Unknown, ended, "see the finding of the other host, or run it again")
	default:
		r.add(id, Unfit, ended, lost)
	}
}
