package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// serveNotes serves a journal without a host that has joined.
func serveNotes(t *testing.T) (*served, *notebook) {
	n := newNotebook(t)
	s := serveCurrent(t, func() (server.Host, error) { return nil, errors.New("it is under way") }, func(c *server.Config) { c.Events = n.log })
	return s, n
}

// get requests events, and returns the connection and the answer.
func (s *served) get(query string) (net.Conn, *http.Response) {
	s.t.Helper()
	if s.calls != nil {
		return s.calls.request(s.t, s.srv, "GET", "/v1/events?"+query, "")
	}
	c := s.dial()
	s.t.Cleanup(func() { c.Close() })
	_, err := fmt.Fprintf(c, "GET /v1/events?%s HTTP/1.1\r\nHost: bakery\r\n\r\n", query)
	require.NoError(s.t, err)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(s.t, err)
	return c, r
}

func (s *served) events(query string) (locks []string) {
	s.t.Helper()
	_, r := s.get(query)
	require.Equal(s.t, http.StatusOK, r.StatusCode)
	require.Equal(s.t, "application/x-ndjson", r.Header.Get("Content-Type"))
	for dec := json.NewDecoder(r.Body); ; {
		var e events.Event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return locks
		}
		require.NoError(s.t, err)
		locks = append(locks, e.Lock)
	}
}

// TestAPIEvents: also while the host joins.
func TestAPIEvents(t *testing.T) {
	t.Parallel()
	s, n := serveNotes(t)
	require.Empty(t, s.events(""))
	first := n.log.Add(events.Event{Kind: events.Enter, Lock: "x"})
	n.log.Add(events.Event{Kind: events.Dead, Host: 2})
	before := n.all(events.Query{})[1].At
	eventually(t, "the next microsecond, to which times are kept", func() bool { return time.Now().Truncate(time.Microsecond).After(before) })
	n.log.Add(events.Event{Kind: events.Enter, Lock: "y"})
	last := n.all(events.Query{})[2].At
	for query, want := range map[string][]string{
		"":                           {"x", "", "y"},
		"name=x":                     {"x", ""},
		"limit=2":                    {"", "y"},
		"limit=1&name=x":             {""},
		"limit=100":                  {"x", "", "y"},
		fmt.Sprint("since=", first):  {"", "y"},
		"since=18446744073709551615": nil,
		"from=" + url.QueryEscape(last.Format(time.RFC3339Nano)):      {"y"},
		"from=2999-12-31T00:00:00%2B01:00":                            nil,
		"until=" + last.Format(time.RFC3339Nano):                      {"x", ""},
		"follow=0&limit=0&name=x&until=" + "2999-01-01T00:00:00.123Z": {"x", ""},
	} {
		require.Equal(t, want, s.events(query), query)
	}
}

func TestAPIEventsRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s, _ := serveNotes(t)
	for query, message := range map[string]string{
		"name=":                            `name=""`,
		"name=a%0ab":                       `name="a\nb"`,
		"since=-1":                         `since="-1"`,
		"since=x":                          `since="x"`,
		"limit=-1":                         `limit="-1": want a whole number from 0 (all) to 10000`,
		"limit=1e9":                        `limit="1e9"`,
		"from=yesterday":                   `from="yesterday"`,
		"until=12:00":                      `until="12:00"`,
		"follow=perhaps":                   `follow="perhaps"`,
		"colour=blue":                      `colour="blue": there is no such parameter`,
		"name=" + strings.Repeat("x", 129): "lock name",
	} {
		_, r := s.get(query)
		require.Equal(t, http.StatusBadRequest, r.StatusCode, query)
		var e struct{ Error api.Error }
		require.NoError(t, json.NewDecoder(r.Body).Decode(&e))
		require.Equal(t, "invalid", e.Error.Code)
		require.Contains(t, e.Error.Message, message)
	}
}

// TestAPIFollowsEvents: after the last existing event, until the journal is closed.
func TestAPIFollowsEvents(t *testing.T) {
	t.Parallel()
	s, n := serveNotes(t)
	n.log.Add(events.Event{Kind: events.Enter, Lock: "old"})
	n.log.Add(events.Event{Kind: events.Enter, Lock: "last"})
	_, r := s.get("follow=1&limit=1")
	dec := json.NewDecoder(r.Body)
	next := func() string {
		t.Helper()
		var e events.Event
		require.NoError(t, dec.Decode(&e))
		return e.Lock
	}
	require.Equal(t, "last", next())
	n.log.Add(events.Event{Kind: events.Enter, Lock: "new"})
	require.Equal(t, "new", next())
	// is answered although there is no event
	leaver, nothing := s.get("follow=1&since=18446744073709551615")
	require.Equal(t, http.StatusOK, nothing.StatusCode)
	require.NoError(t, leaver.Close())
	n.log.Close()
	require.Equal(t, io.EOF, dec.Decode(&events.Event{}))
}

// TestAPIEventsOfAService: from its first term until it has left.
func TestAPIEventsOfAService(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 4)
		r := c.run(1)
		holder := r.ask(1, "")
		holder.until("granted")
		holder.leave()
		_, answer := r.get("follow=1")
		var got []events.Kind
		dec := json.NewDecoder(answer.Body)
		var e events.Event
		for e.Kind != events.Exit {
			require.NoError(t, dec.Decode(&e))
			got = append(got, e.Kind)
		}
		require.Equal(t, []events.Kind{events.Joined, events.Request, events.Choosing, events.Enter, events.Exit}, got)
		r.leaves()
		require.NoError(t, dec.Decode(&e))
		require.Equal(t, events.Left, e.Kind)
		require.Equal(t, io.EOF, dec.Decode(&e))
	})
}
