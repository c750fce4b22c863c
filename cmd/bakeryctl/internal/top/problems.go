package top

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// problems returns the problems of the report, the worst first. If there is no current report, it
// returns only the reason, because the earlier problems may be over.
func (m model) problems() []report.Problem {
	why, joining := errors.AsType[*notReady](m.failed)
	switch {
	case joining:
		what := fmt.Sprintf("nothing to show for %s", render.Seconds(m.now.Sub(m.since).Milliseconds()))
		return []report.Problem{{Severity: report.SeverityWarning, Text: what, Why: why.Message, Remedy: why.Hint}}
	case m.failed != nil:
		return []report.Problem{m.noAnswer()}
	case m.answer == nil:
		return nil
	}
	return m.answer.Report.Problems
}

// noAnswer returns that bakeryd does not answer, and what that means for its lease.
func (m model) noAnswer() report.Problem {
	p := report.Problem{Severity: report.SeverityError, Why: reason(m.failed), Text: fmt.Sprintf("no answer for %s, since %s",
		render.Seconds(m.now.Sub(m.since).Milliseconds()), m.since.Local().Format(time.TimeOnly))}
	if m.answer != nil && m.answer.Report.ThisHost != nil {
		if left := m.left(); left > 0 {
			p.Remedy = "its lease ends in " + render.Seconds(left.Milliseconds()) + ": if bakeryd starts before that, it keeps every lock; "
		} else {
			p.Remedy = "its lease is over by now, unless it still runs; "
		}
		if m.now.Sub(m.since) < 5*time.Second && m.left() > m.lease()/2 {
			p.Severity = report.SeverityWarning // it may be a restart
		}
	}
	p.Remedy += "retrying"
	if f, ok := m.failed.(*cli.Failure); ok && f.Hint != "" {
		p.Remedy = f.Hint + "; " + p.Remedy
	}
	return p
}

// reason returns why bakeryd does not answer, without the socket's path, which is long.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}
