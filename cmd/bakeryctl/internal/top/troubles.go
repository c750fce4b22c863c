package top

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
)

type trouble struct {
	level      render.Level // bad, warn or soft
	what, todo string
}

// troubles returns the problems of the report, the worst first. If there is no current report, it
// returns only the reason, because the earlier problems may be over.
func (m model) troubles() (all []trouble) {
	why, joining := errors.AsType[*notReady](m.failed)
	switch {
	case joining:
		what := fmt.Sprintf("nothing to show for %s: %s", render.Seconds(m.now.Sub(m.since).Milliseconds()), why.Message)
		return []trouble{{render.Warn, what, why.Hint}}
	case m.failed != nil:
		return []trouble{m.noAnswer()}
	case m.answer == nil:
		return nil
	}
	for _, p := range m.answer.Report.Problems {
		all = append(all, trouble{show.SeverityLevel(p.Severity), show.ProblemText(p), p.Remedy})
	}
	return all
}

// noAnswer returns that bakeryd does not answer, and what that means for its lease.
func (m model) noAnswer() trouble {
	t := trouble{level: render.Bad, what: fmt.Sprintf("no answer for %s, since %s: %s",
		render.Seconds(m.now.Sub(m.since).Milliseconds()), m.since.Local().Format(time.TimeOnly), reason(m.failed))}
	if m.answer != nil && m.answer.Report.ThisHost != nil {
		if left := m.left(); left > 0 {
			t.todo = "its lease ends in " + render.Seconds(left.Milliseconds()) + ": if bakeryd starts before that, it keeps every lock; "
		} else {
			t.todo = "its lease is over by now, unless it still runs; "
		}
		if m.now.Sub(m.since) < 5*time.Second && m.left() > m.lease()/2 {
			t.level = render.Warn // it may be a restart
		}
	}
	t.todo += "retrying"
	if f, ok := m.failed.(*cli.Failure); ok && f.Hint != "" {
		t.todo = f.Hint + "; " + t.todo
	}
	return t
}

// reason returns why bakeryd does not answer, without the socket's path, which is long.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}
