package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/access"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/policy"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// glancing is a host that counts the reports it is asked for. Its disk is never read for the address.
type glancing struct {
	Host
	took    time.Duration
	glances int // one at a time
	err     *api.Error
}

func (g *glancing) Glance() *report.Glance {
	time.Sleep(g.took)
	g.glances++
	return &report.Glance{Error: g.err, Report: &report.Report{Problems: []report.Problem{}}}
}

// looking returns a server of a host. Its handler is called directly, in virtual time.
func looking(host Host, metrics http.Handler) *Server {
	return New(Config{Host: func() (Host, error) { return host, nil }, Log: slog.New(slog.DiscardHandler), Metrics: metrics})
}

func (s *Server) look(ctx context.Context, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.looking.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost"+path, nil))
	return w
}

// TestShared_ManyClientsAsk_OneReportAtATime: 64 clients that ask without pause for a minute get answers
// of at most two reports a second, and at most 200 answers a second.
func TestShared_ManyClientsAsk_OneReportAtATime(t *testing.T) {
	for _, path := range []string{"/v1/status", "/page/status"} {
		synctest.Test(t, func(t *testing.T) {
			host := &glancing{}
			s := looking(host, nil)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var clients sync.WaitGroup
			var answers [64]int
			for i := range answers {
				clients.Go(func() {
					for ctx.Err() == nil && answers[i] < 20_000 { // without a limit no time passes
						if s.look(ctx, path).Body.Len() > 0 {
							answers[i]++
						}
					}
				})
			}
			clients.Wait()
			sum := 0
			for _, n := range answers {
				require.Positive(t, n, "all clients are served")
				sum += n
			}
			require.LessOrEqual(t, sum, int((time.Minute+askBurst)/askEvery))
			require.Greater(t, sum, int(time.Minute/askEvery), "no slower than the limit")
			require.LessOrEqual(t, host.glances, int(time.Minute/leastShared)+1)
			require.Greater(t, host.glances, 100, "answers are new")
		})
	}
}

// TestShared_SlowReports_TakeATenthOfTheTime: but no answer is older than the limit.
func TestShared_SlowReports_TakeATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &glancing{took: 100 * time.Millisecond}
		s := looking(host, nil)
		for range 1000 { // for 10 s
			s.look(t.Context(), "/v1/status")
			time.Sleep(10 * time.Millisecond)
		}
		require.InDelta(t, 10, host.glances, 2)
		host.took, host.glances = 10*time.Second, 0
		for range 240 { // for 24 s, and the reports
			s.look(t.Context(), "/v1/status")
			time.Sleep(100 * time.Millisecond)
		}
		require.InDelta(t, 12, host.glances, 1, "each is shared for 2 s")
	})
}

// TestShared_ClientGoes_OthersGetTheAnswer: a client that goes ends neither the report nor the others.
func TestShared_ClientGoes_OthersGetTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &glancing{took: time.Second}
		s := looking(host, nil)
		ctx, goes := context.WithCancel(t.Context())
		go s.look(ctx, "/v1/status")
		synctest.Wait()
		goes()
		require.Equal(t, http.StatusOK, s.look(t.Context(), "/v1/status").Code)
		require.Equal(t, 1, host.glances)
	})
}

// TestShared_Refusals_CountForEachClient, and the address never answers with an old report in place of an error.
func TestShared_Refusals_CountForEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := looking(&glancing{err: &api.Error{Code: api.CodeDevice, Message: "IO hangs"}}, nil)
		for range 3 {
			w := s.look(t.Context(), "/v1/status")
			require.Equal(t, (&api.Error{Code: api.CodeDevice}).Status(), w.Code)
			require.Contains(t, w.Body.String(), "IO hangs")
		}
		require.EqualValues(t, 3, s.cfg.Tally.Refused.All()[api.CodeDevice])
	})
}

// TestShared_MetricsPanic_NextRequestIsServed: a request that waits is not left behind.
func TestShared_MetricsPanic_NextRequestIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := looking(&glancing{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				panic("boom")
			}
			fmt.Fprint(w, "number ", calls, r.Header, r.URL.Query())
		}))
		require.Panics(t, func() { s.look(t.Context(), "/metrics") })
		require.Equal(t, "number 2 map[] map[]", s.look(t.Context(), "/metrics").Body.String())
		require.Equal(t, "number 2 map[] map[]", s.look(t.Context(), "/metrics?x=y").Body.String(), "the same for all")
	})
}

// TestShared_OnlyThePageIsCompressed: all other answers are shared by clients that take compression, too.
func TestShared_OnlyThePageIsCompressed(t *testing.T) {
	for path, made := range map[string]int{"/v1/status": 1, "/page/status": 2} {
		synctest.Test(t, func(t *testing.T) {
			host := &glancing{}
			s := looking(host, nil)
			for range 2 {
				s.look(t.Context(), path)
				r := httptest.NewRequest("GET", "http://localhost"+path, nil)
				r.Header.Set("Accept-Encoding", "gzip")
				s.looking.Handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			require.Equal(t, made, host.glances, path)
		})
	}
}

// TestShared_Errors_AreSharedBriefly: also if they took long, because the next try may succeed.
func TestShared_Errors_AreSharedBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := http.StatusServiceUnavailable
		h := looking(nil, nil).share(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(10 * time.Second)
			w.WriteHeader(status)
		}, listShared, false)
		code := func() int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			return w.Code
		}
		require.Equal(t, status, code())
		status = http.StatusOK
		require.Equal(t, http.StatusServiceUnavailable, code(), "the same answer")
		time.Sleep(leastShared)
		require.Equal(t, http.StatusOK, code())
		status = http.StatusServiceUnavailable
		time.Sleep(listShared - time.Second)
		require.Equal(t, http.StatusOK, code(), "the same answer")
		time.Sleep(time.Second)
		require.Equal(t, status, code())
	})
}

// TestShared_TermEnds_NoAnswerIsOfIt: neither until the host joins again, nor after that, nor does a
// request wait for a read of that term.
func TestShared_TermEnds_NoAnswerIsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &glancing{}, &glancing{}
		var host Host = first
		s := New(Config{Log: slog.New(slog.DiscardHandler), Host: func() (Host, error) {
			if host == nil {
				return nil, errors.New("joining again")
			}
			return host, nil
		}})
		code := func() int { return s.look(t.Context(), "/v1/status").Code }
		require.Equal(t, http.StatusOK, code())
		host = nil
		require.Equal(t, http.StatusServiceUnavailable, code())
		host = second
		require.Equal(t, http.StatusOK, code())
		require.Equal(t, 1, second.glances)

		time.Sleep(mostShared)
		second.took, first.took = time.Hour, 2*time.Hour
		go code()
		synctest.Wait()
		began := time.Now()
		host = nil
		require.Equal(t, http.StatusServiceUnavailable, code())
		require.Equal(t, began, time.Now())
		host = first
		go code()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 2, second.glances, "its answer is made, and not kept")
		require.Equal(t, http.StatusOK, code())
		require.Equal(t, 2*time.Hour, time.Since(began), "the answer of the present term")
		require.Equal(t, 2, first.glances, "one at a time")
	})
}

// TestStatus_ByAddress_NamesTheInvalidPolicyFile, as the page does.
func TestStatus_ByAddress_NamesTheInvalidPolicyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy")
	require.NoError(t, os.WriteFile(path, []byte("alow\n"), 0o644))
	file, err := policy.Open(path, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, access.ErrPolicy)
	synctest.Test(t, func(t *testing.T) {
		s := looking(&glancing{}, nil)
		s.cfg.Policy = file
		for _, of := range []string{"/v1/status", "/page/status"} {
			require.Contains(t, s.look(t.Context(), of).Body.String(), "the policy file "+path+" is invalid", of)
		}
	})
}

// TestTurns_ManyReaders_WorkATenthOfTheTime: also if half of them are gone before their turn.
func TestTurns_ManyReaders_WorkATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := make(turns, 1), time.Now()
		gone, goes := context.WithCancel(t.Context())
		goes()
		var clients sync.WaitGroup
		reading := 0
		for range 20 {
			clients.Go(func() {
				for range 50 {
					_, err := s.begin(gone)
					require.ErrorIs(t, err, context.Canceled)
					end, err := s.begin(t.Context())
					require.NoError(t, err)
					reading++
					time.Sleep(10 * time.Millisecond) // a batch
					require.Equal(t, 1, reading)
					reading--
					end()
				}
			})
		}
		clients.Wait()
		const read = 20 * 50 * 10 * time.Millisecond
		require.Equal(t, workShare*read-(workShare-1)*10*time.Millisecond, time.Since(began), "without the last rest")
	})
}

// TestTurns_ClientIsGone_HasNone: also if it is its turn.
func TestTurns_ClientIsGone_HasNone(t *testing.T) {
	gone, goes := context.WithCancel(t.Context())
	goes()
	s := make(turns, 1)
	for range 64 {
		_, err := s.begin(gone)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// TestTurns_ReadStalls_RestIsBounded: the next client does not wait for nine times that.
func TestTurns_ReadStalls_RestIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(turns, 1)
		end, err := s.begin(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour)
		end()
		began := time.Now()
		_, err = s.begin(t.Context())
		require.NoError(t, err)
		require.Equal(t, longestRest, time.Since(began))
	})
}

// TestEvents_ClientsOfTheAddressGo_NextIsServed: requests whose clients are gone end, and cost the others
// nothing, in each of the ways to ask for events.
func TestEvents_ClientsOfTheAddressGo_NextIsServed(t *testing.T) {
	var lines []byte
	const count = 1000
	for seq := range uint64(count) {
		lines = (&events.Event{Seq: seq + 1, At: time.Now(), Kind: events.Gap}).AppendLine(lines)
	}
	for query, want := range map[string]int{"": count, "?limit=5": 5, "?follow=1": count} {
		path := filepath.Join(t.TempDir(), "x.events")
		require.NoError(t, os.WriteFile(path, lines, 0o600))
		synctest.Test(t, func(t *testing.T) {
			journal := events.New(clock.Boottime, slog.New(slog.DiscardHandler))
			defer journal.Close()
			journal.Keep(path, events.Self{Host: 1, Name: "db1", Incarnation: 7})
			s := New(Config{Log: slog.New(slog.DiscardHandler), Events: journal})
			end, err := s.reading.begin(t.Context()) // another client reads
			require.NoError(t, err)
			ctx, leave := context.WithCancel(t.Context())
			var gone sync.WaitGroup
			for range 37 {
				gone.Go(func() { require.NotContains(t, s.look(ctx, "/v1/events"+query).Body.String(), "gap") })
			}
			synctest.Wait()
			leave()
			gone.Wait()

			w, began := httptest.NewRecorder(), time.Now()
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan struct{})
			go func() {
				defer close(served)
				s.looking.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events"+query, nil))
			}()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.Zero(t, w.Body.Len(), "it is not its turn")
			end()
			time.Sleep((workShare-1)*10*time.Millisecond + time.Millisecond)
			synctest.Wait()
			require.Equal(t, want, strings.Count(w.Body.String(), "\n"), query)
			require.LessOrEqual(t, time.Since(began), 101*time.Millisecond)
			stop()
			<-served
		})
	}
}
