package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	ctlcheck "github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/check"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/test/showtest"
)

func TestPaint_Tables_DifferOnlyInColour(t *testing.T) {
	r := showtest.Report()
	r.Damaged = []report.Damage{{What: "slot of host 2 in lock 3", Offset: 4096, Error: "checksum"}}
	r.Lockspace.Warnings = []string{"the superblock is damaged, its copy is in use"}
	r.Judge()
	for name, show := range map[string]func(out io.Writer, p render.Paint){
		"status": func(out io.Writer, p render.Paint) { show.Show(out, r, showtest.Noon, p) },
		"hosts":  func(out io.Writer, p render.Paint) { show.HostTable(out, r, false, p) },
		"check": func(out io.Writer, p render.Paint) {
			findings := []check.Finding{{Severity: check.SeverityError, What: "x"}, {Severity: check.SeverityNote, What: "y"}}
			r := ctlcheck.Report{Result: &check.Result{Findings: findings}, Errors: 1, Notes: 1}
			r.Show(out, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var bare, painted bytes.Buffer
			require.NoError(t, render.WriteTable(&bare, func(w io.Writer) { show(w, false) }))
			require.NoError(t, render.WriteTable(&painted, func(w io.Writer) { show(w, true) }))
			require.NotContains(t, bare.String(), "\x1b")
			require.Contains(t, painted.String(), "\x1b[31m")
			require.Equal(t, bare.String(), ansi.Strip(painted.String()))
			for line := range strings.Lines(painted.String()) {
				require.Equal(t, strings.Count(line, "\x1b["), 2*strings.Count(line, "\x1b[0m"), "each colour ends in its line: %q", line)
			}
		})
	}
}

func TestStatusColours(t *testing.T) {
	r := showtest.Report()
	r.Judge()
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { show.Show(w, r, showtest.Noon, true) }))
	for _, want := range []string{"\x1b[1mHOST  NAME", "\x1b[32mlive\x1b[0m", "\x1b[31msilent\x1b[0m", "\x1b[32mheld\x1b[0m", "deploy          \x1b[31mheld\x1b[0m", "\x1b[33m1. waiting\x1b[0m", "\x1b[2mfree\x1b[0m",
		"  \x1b[31merror: lock deploy is stuck: held by host 3 (db3), silent, dead in 15 s\x1b[0m\n"} {
		require.Contains(t, out.String(), want)
	}
}
