package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

var probedUUID = layout.UUID{1, 2, 3}

// serveMeeting serves a bakeryd that returns the report met for a coherence check.
func serveMeeting(t *testing.T, dir string, met measuring.MeetReport) (socket string) {
	t.Helper()
	socket = filepath.Join(dir, fmt.Sprint(met.Host))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		hosts := []report.Host{{ID: 1, Name: "db1", Health: report.HealthLive}, {ID: 2, Name: "db2", Health: report.HealthLive}}
		_ = json.NewEncoder(w).Encode(report.Report{Lockspace: report.Lockspace{UUID: probedUUID}, Hosts: hosts,
			ThisHost: &report.ThisHost{ID: met.Host}})
	})
	mux.HandleFunc("POST /v1/meet", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Host, Rounds int }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || asked.Host != met.Peer || asked.Rounds != meetRounds {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(met)
	})
	server := &http.Server{Handler: mux}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		<-done
	})
	return socket
}

func TestProbeWithSocket(t *testing.T) {
	const nonce1, nonce2, older = 11, 22, 5
	for _, c := range []struct {
		name string
		a, b measuring.MeetReport
		want [2]Verdict
		says string
	}{
		{"fresh", measuring.MeetReport{Outcome: measuring.MeetFresh, Rounds: 200}, measuring.MeetReport{Outcome: measuring.MeetFresh, Rounds: 200},
			[2]Verdict{OK, OK}, "host 2 (\"\") saw every write of host 1 immediately: 200 rounds"},
		{"stale", measuring.MeetReport{Outcome: measuring.MeetFresh}, measuring.MeetReport{Outcome: measuring.MeetStale, Stale: 3, Detail: "slot x is old"},
			[2]Verdict{OK, Unfit}, "read old contents 3 times in 0 rounds; slot x is old"},
		{"one host does not see the other", measuring.MeetReport{Outcome: measuring.MeetAbsent, PeerNonce: nonce2}, measuring.MeetReport{Outcome: measuring.MeetAbsent, PeerNonce: older},
			[2]Verdict{OK, Unfit}, "host 2 does not see what host 1 writes"},
		{"neither host sees the other", measuring.MeetReport{Outcome: measuring.MeetAbsent}, measuring.MeetReport{Outcome: measuring.MeetAbsent},
			[2]Verdict{Unfit, Unfit}, "host 2 does not see what host 1 writes"},
		{"one host stops seeing the other", measuring.MeetReport{Outcome: measuring.MeetEnded, Detail: "host 2 has given up"}, measuring.MeetReport{Outcome: measuring.MeetStalled, Detail: "nothing new was seen"},
			[2]Verdict{Unknown, Unfit}, "nothing new was seen, after 0 rounds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "bk") // short, because the path of a socket is limited
			require.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			c.a.Host, c.a.Peer, c.a.Nonce = 1, 2, nonce1
			c.b.Host, c.b.Peer, c.b.Nonce = 2, 1, nonce2
			o := Options{Socket: serveMeeting(t, dir, c.a), With: "db2", Stderr: io.Discard}
			r := &Report{Device: "/dev/locks", space: &layout.Superblock{UUID: probedUUID}}
			o.With = serveMeeting(t, dir, c.b)
			require.NoError(t, r.checkWith(t.Context(), o))
			require.Len(t, r.Findings, 2)
			require.Equal(t, c.want, [2]Verdict{r.Findings[0].Verdict, r.Findings[1].Verdict})
			require.Contains(t, r.Findings[1].Detail, c.says)
			r.conclude()
			require.Equal(t, c.want == [2]Verdict{OK, OK}, r.Fit)
		})
	}
}

func TestProbeWithHost(t *testing.T) {
	for _, c := range []struct {
		report measuring.MeetReport
		code   int
		says   string
	}{
		{measuring.MeetReport{Outcome: measuring.MeetAbsent}, cli.ExitUnavailable, "check with host 2 (db2): nothing that it wrote"},
		{measuring.MeetReport{Outcome: measuring.MeetEnded, Detail: "host 2 has started again"}, cli.ExitUnavailable, "host 2 has started again"},
		{measuring.MeetReport{Outcome: measuring.MeetFresh}, cli.ExitOK, ""},
	} {
		dir, err := os.MkdirTemp("", "bk")
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		c.report.Host, c.report.Peer = 1, 2
		o := Options{Socket: serveMeeting(t, dir, c.report), With: "db2", Stderr: io.Discard}
		r := &Report{Device: "/dev/locks", space: &layout.Superblock{UUID: probedUUID}}
		err = r.checkWith(t.Context(), o)
		if c.code == cli.ExitOK {
			require.NoError(t, err)
			require.Len(t, r.Findings, 1)
			continue
		}
		var f *cli.Failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, c.code, f.Code)
		require.Contains(t, f.Error(), c.says)
		require.NotEmpty(t, f.Hint)
	}
}
