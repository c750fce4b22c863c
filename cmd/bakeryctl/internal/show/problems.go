package show

import (
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// SeverityLevel returns the level at which a problem is displayed.
func SeverityLevel(s report.Severity) render.Level {
	switch s {
	case report.SeverityError:
		return render.Bad
	case report.SeverityWarning:
		return render.Warn
	}
	return render.Soft
}

// ProblemText returns what is wrong and why, in one line.
func ProblemText(p report.Problem) string {
	if p.Why == "" {
		return p.Text
	}
	return p.Text + ": " + p.Why
}
