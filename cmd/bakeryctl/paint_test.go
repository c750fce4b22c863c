package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/report"
)

func TestColourIsOn(t *testing.T) {
	none := func(string) string { return "" }
	var out bytes.Buffer // no terminal
	require.False(t, colourAuto.on(&out, none))
	require.False(t, colour("").on(&out, none))
	require.True(t, colourAlways.on(&out, func(string) string { return "1" }), "whatever NO_COLOR says")
	require.False(t, colourNever.on(&out, none))
	var c colour
	require.ErrorContains(t, c.Set("yes"), "want auto, always or never")
	require.NoError(t, c.Set("never"))
	require.Equal(t, "never", c.String())
}

func TestPaintedTablesAreThePlainOnes(t *testing.T) {
	r := aReport()
	r.Damaged = []report.Damage{{What: "slot of host 2 in lock 3", Offset: 4096, Error: "checksum"}}
	r.Lockspace.Warnings = []string{"the superblock is damaged, its copy is in use"}
	for name, show := range map[string]func(out *bytes.Buffer, p paint) error{
		"status": func(out *bytes.Buffer, p paint) error { return showReport(out, r, noon, p) },
		"hosts": func(out *bytes.Buffer, p paint) error {
			return writeTable(out, func(w io.Writer) { showHostTable(w, r, p) })
		},
		"check": func(out *bytes.Buffer, p paint) error {
			return showCheck(out, &check.Result{Findings: []check.Finding{{Severity: check.SeverityError, What: "x"}, {Severity: check.SeverityNote, What: "y"}}}, nil, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var bare, painted bytes.Buffer
			require.NoError(t, show(&bare, false))
			require.NoError(t, show(&painted, true))
			require.NotContains(t, bare.String(), "\x1b")
			require.Contains(t, painted.String(), "\x1b[31m")
			require.Equal(t, bare.String(), ansi.Strip(painted.String()))
			for line := range strings.Lines(painted.String()) {
				require.Equal(t, strings.Count(line, "\x1b["), 2*strings.Count(line, unpaint), "each colour ends in its line: %q", line)
			}
		})
	}
}

func TestStatusColours(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, showReport(&out, aReport(), noon, true))
	for _, want := range []string{"\x1b[1mHOST  NAME", "\x1b[32mlive\x1b[0m", "\x1b[31msilent\x1b[0m", "\x1b[32mheld\x1b[0m", "deploy          \x1b[31mheld\x1b[0m", "\x1b[33m1. waiting\x1b[0m", "\x1b[2mfree\x1b[0m",
		"\x1b[31mwarning: 1 lock stuck, see below\x1b[0m"} {
		require.Contains(t, out.String(), want)
	}
}
