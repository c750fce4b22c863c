//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// monitor is qemu's, by QMP.
type monitor struct {
	in io.Writer

	mu      sync.Mutex // guards the fields below
	events  []event
	answers int
	errors  []string
}

// event is an event of the machine, such as RESET, WATCHDOG and "MIGRATION completed".
type event struct {
	name string
	at   time.Time
}

func newMonitor(in io.Writer) *monitor { return &monitor{in: in} }

// read processes qemu's messages, until it ends.
func (m *monitor) read(out io.Reader) {
	messages := json.NewDecoder(out)
	for {
		var message struct {
			Event  string
			Data   struct{ Status string }
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := messages.Decode(&message); err != nil {
			return
		}
		m.mu.Lock()
		switch {
		case message.Event != "":
			m.events = append(m.events, event{strings.TrimSpace(message.Event + " " + message.Data.Status), time.Now()})
		case message.Error != nil:
			m.errors = append(m.errors, message.Error.Desc)
			m.answers++
		case message.Return != nil:
			m.answers++
		}
		m.mu.Unlock()
	}
}

// do executes one command at a time. Its arguments are members of a JSON object.
func (m *monitor) do(t *testing.T, command string, arguments ...string) {
	t.Helper()
	m.mu.Lock()
	before := m.answers
	m.mu.Unlock()
	_, err := fmt.Fprintf(m.in, `{"execute": %q, "arguments": {%s}}`+"\n", command, strings.Join(arguments, ", "))
	require.NoError(t, err)
	eventually(t, "qemu answers to "+command, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Empty(t, m.errors)
		return m.answers > before
	})
}

// seen returns the names of the events so far.
func (m *monitor) seen() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		names = append(names, e.name)
	}
	return names
}

// first returns when an event was first seen since a time; zero if not yet.
func (m *monitor) first(name string, since time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if e.name == name && e.at.After(since) {
			return e.at
		}
	}
	return time.Time{}
}
