package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
)

func TestMeetByAPI(t *testing.T) {
	c := realCluster(t, 8, 4)
	a, b := serveSocket(t, c.host(1)), serveSocket(t, c.host(2))
	post := func(s *served, body string) (int, string) {
		r, err := unixClient(s.path).Post("http://bakery/v1/meet", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}
	for _, wrong := range []string{`{"host": 1}`, `{"host": 9, "rounds": 1, "timeout_ms": 1}`, `{"host": 2, "rounds": 0, "timeout_ms": 1}`,
		`{"host": 2, "rounds": 1, "timeout_ms": 0}`, `{"peer": 2}`} {
		status, text := post(a, wrong)
		require.Equal(t, http.StatusBadRequest, status, text)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		status, text := post(b, `{"host": 1, "rounds": 10, "timeout_ms": 60000}`)
		require.Equal(t, http.StatusOK, status, text)
	})
	status, text := post(a, `{"host": 2, "rounds": 10, "timeout_ms": 60000}`)
	require.Equal(t, http.StatusOK, status, text)
	var r measuring.MeetReport
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	require.Equal(t, measuring.MeetFresh, r.Outcome)
	require.Equal(t, "db1", r.HostName)
	require.Contains(t, text, `"p99_us"`)
	wg.Wait()

	// One check at a time.
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		err := api.ErrCoherenceCheck
		for errors.Is(err, api.ErrCoherenceCheck) { // while one below is running
			_, err = a.d.Meet(ctx, measuring.MeetOptions{Host: 3, Rounds: 1, Timeout: generous})
		}
		require.ErrorIs(t, err, context.Canceled)
	})
	within(t, "being busy", func() {
		for {
			status, text := post(a, `{"host": 2, "rounds": 1, "timeout_ms": 1}`)
			if status == http.StatusConflict {
				require.Contains(t, text, `"coherence_check"`)
				return
			}
		}
	})
	cancel()
	wg.Wait()
}

func unixClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
}
