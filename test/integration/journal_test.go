//go:build integration

package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	proc "github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/history"
)

// journal is a file in which the commands under one lock record themselves. It shows, independent
// of bakeryd, which command was inside when.
type journal struct {
	t    *testing.T
	path string
}

func (s *space) journal(lock string) journal {
	return journal{s.t, filepath.Join(s.dir, "journal."+lock)}
}

// stay is a command's time under the lock, on the clock of [sinceBoot].
type stay struct {
	name        string
	pid         int
	token       layout.Ticket
	enter, last time.Duration
	term, exit  time.Duration // 0: no SIGTERM; killed, or still running
	others      []uint64      // other live processes inside when it entered
}

// readJournal returns the stays in the order of their begin. With events it reads only these.
func readJournal(path string, events ...string) (stays []*stay, err error) {
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	byPID := map[int]*stay{}
	for line := range strings.Lines(string(b)) {
		event, rest, _ := strings.Cut(line, " ")
		if len(events) > 0 && !slices.Contains(events, event) {
			continue
		}
		name, rest, _ := strings.Cut(rest, " ")
		var n [4]uint64 // process, token, value, time
		words := strings.Fields(rest)
		if len(words) != len(n) {
			return nil, fmt.Errorf("line %q of a journal", line)
		}
		for i, word := range words {
			if n[i], err = strconv.ParseUint(word, 10, 64); err != nil {
				return nil, fmt.Errorf("line %q of a journal: %w", line, err)
			}
		}
		pid, value, at := int(n[0]), n[2], time.Duration(n[3])
		if event == "enter" {
			byPID[pid] = &stay{name: name, pid: pid, token: layout.Ticket(n[1]), enter: at}
			stays = append(stays, byPID[pid])
		}
		s := byPID[pid]
		s.last = max(s.last, at)
		switch event {
		case "other":
			s.others = append(s.others, value)
		case "term":
			s.term = cmp.Or(s.term, at)
		case "exit":
			s.exit = at
		}
	}
	slices.SortFunc(stays, func(a, b *stay) int { return cmp.Compare(a.enter, b.enter) })
	return stays, nil
}

func (j journal) stays() []*stay {
	j.t.Helper()
	stays, err := readJournal(j.path)
	require.NoError(j.t, err)
	return stays
}

// find returns the latest command of a name, or nil.
func (j journal) find(name string) *stay {
	j.t.Helper()
	for _, s := range slices.Backward(j.stays()) {
		if s.name == name {
			return s
		}
	}
	return nil
}

// entered waits until a command is inside.
func (j journal) entered(name string) (s *stay) {
	j.t.Helper()
	eventually(j.t, name+" enters", func() bool {
		s = j.find(name)
		return s != nil
	})
	return s
}

// outside checks that a command has not entered.
func (j journal) outside(name string) {
	j.t.Helper()
	require.Nil(j.t, j.find(name), "%s is inside", name)
}

// gone waits until the process of a command has ended, and returns its stay.
func (j journal) gone(name string) *stay {
	j.t.Helper()
	s := j.find(name)
	require.NotNil(j.t, s, "%s never entered", name)
	eventually(j.t, name+" is gone", func() bool { return !s.alive() })
	return j.find(name)
}

// exclusive fails the test unless each command ended before the next one entered, with a greater
// token. Commands with the same token belong to one hold.
func (j journal) exclusive() {
	j.t.Helper()
	holds := map[layout.Ticket]*stay{}
	for _, s := range j.stays() {
		if hold := holds[s.token]; hold == nil {
			holds[s.token] = s
		} else {
			hold.last = max(hold.last, s.last)
		}
		require.Empty(j.t, s.others, "%s (token %d) entered while processes were alive inside", s.name, s.token)
	}
	r := history.New(1)
	for token, s := range holds {
		r.Add(history.Call{Kind: history.Acquire, Token: token, Asked: s.enter, Answered: s.enter})
		r.Add(history.Call{Kind: history.Release, Token: token, Asked: s.last, Answered: s.last})
	}
	requireHistory(j.t, r.Rest())
}

// alive reports whether the stay's process runs; its number may belong to another process.
func (s *stay) alive() bool {
	id, err := proc.Of(s.pid)
	return err == nil && time.Duration(id.Started)*(time.Second/100) <= s.enter && breathes(s.pid)
}

// breathes reports whether a process exists and is not a zombie.
func breathes(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := b[bytes.LastIndexByte(b, ')')+1:]
	return len(state) > 1 && !bytes.ContainsRune([]byte("ZX"), rune(state[1]))
}

// measured logs a time in the form that test/all shows.
func measured(t *testing.T, what string, d time.Duration) {
	t.Helper()
	t.Logf("measured: %s: %.2f s", what, d.Seconds())
}
