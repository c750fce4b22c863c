//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// command is a program that runs, or ran, in a machine. The machine's mu guards the fields that
// change.
type command struct {
	m       *machine
	id      int
	argv    []string
	out     []string // lines printed by it and its children
	silent  bool
	ended   bool
	at      time.Time // its end
	code    int
	problem string
}

// start starts a program in the machine.
func (m *machine) start(argv ...string) *command {
	m.t.Helper()
	m.mu.Lock()
	c := &command{m: m, id: len(m.commands) + 1, argv: argv}
	m.commands = append(m.commands, c)
	m.mu.Unlock()
	c.ask(Request{Argv: argv})
	return c
}

// run runs a program that must succeed, and returns its output.
func (m *machine) run(argv ...string) string {
	m.t.Helper()
	c := m.start(argv...)
	c.exits(0)
	eventually(m.t, "all of its output", func() bool { return c.is(func() bool { return c.silent }) })
	return c.said()
}

// sh runs a script that must succeed, and returns its output.
func (m *machine) sh(script string) string {
	m.t.Helper()
	return m.run("sh", "-ec", script)
}

func (c *command) ask(r Request) {
	c.m.t.Helper()
	r.ID = c.id
	c.m.ask(r)
}

func (m *machine) ask(r Request) {
	m.t.Helper()
	b, err := json.Marshal(r)
	require.NoError(m.t, err)
	_, err = m.port.Write(append(b, '\n'))
	require.NoError(m.t, err)
}

func (c *command) signal(s syscall.Signal) { c.m.t.Helper(); c.ask(Request{Signal: int(s)}) }

func (c *command) input(text string) { c.m.t.Helper(); c.ask(Request{Input: text}) }

// take processes a reply about it.
func (c *command) take(r Reply) {
	if r.Out != "" {
		c.out = append(c.out, r.Out)
	}
	if r.Problem != "" {
		c.problem = r.Problem
	}
	if r.Ended {
		c.ended, c.at, c.code = true, time.Now(), r.Code
	}
	c.silent = c.silent || r.Silent
}

// lostMachine ends it, because its machine was reset.
func (c *command) lostMachine() {
	if !c.ended {
		c.ended, c.at, c.code = true, time.Now(), -1
	}
	c.silent = true
}

func (c *command) is(f func() bool) bool {
	c.m.t.Helper()
	c.m.running()
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	require.Empty(c.m.t, c.problem, "%q in %s", c.argv, c.m.name)
	return f()
}

// said returns its output so far.
func (c *command) said() string {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return strings.Join(c.out, "")
}

// says waits until it has printed text.
func (c *command) says(text string) {
	c.m.t.Helper()
	eventually(c.m.t, fmt.Sprintf("%q in %s says %q", c.argv, c.m.name, text), func() bool {
		over := c.is(func() bool { return c.ended && c.silent })
		said := c.said()
		if over && !strings.Contains(said, text) {
			c.m.t.Fatalf("%q in %s has ended without %q, it said: %s", c.argv, c.m.name, text, said)
		}
		return strings.Contains(said, text)
	})
}

// runs reports whether it has not ended.
func (c *command) runs() bool {
	c.m.t.Helper()
	return c.is(func() bool { return !c.ended })
}

// exits waits for its end and checks its exit code; -1 after a signal or a reset.
func (c *command) exits(code int) {
	c.m.t.Helper()
	eventually(c.m.t, fmt.Sprintf("%q in %s ends", c.argv, c.m.name), func() bool { return !c.runs() })
	require.Equal(c.m.t, code, c.code, "exit code of %q in %s, which said: %s", c.argv, c.m.name, c.said())
}

// end returns when it ended.
func (c *command) end() time.Time {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.at
}
