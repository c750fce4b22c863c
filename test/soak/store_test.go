package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestStore accepts records in time, refuses others, passes on violations, and makes a section last
// when a fault is about to hit it.
func TestStore(t *testing.T) {
	var found []string
	var seen []record
	s := &storage{judge: newJudge(time.Second), aims: map[int]*aim{}, saw: func(a record) { seen = append(seen, a) },
		found: func(all []string) { found = append(found, all...) }}
	var err error
	s.backing, err = os.Create(filepath.Join(t.TempDir(), "blocks"))
	require.NoError(t, err)
	at := blockOf("mixed")
	require.NoError(t, s.keep(at, block{N: 7}))
	s.judge.locks["mixed"].n = 7
	write := func(a record) syscall.Errno {
		b, err := json.Marshal(a)
		require.NoError(t, err)
		_, errno := s.Write(t.Context(), nil, b, at)
		return errno
	}
	read := func() (b block) {
		r, errno := s.Read(t.Context(), nil, make([]byte, blockSize), at)
		require.Zero(t, errno)
		text, _ := r.Bytes(nil)
		require.NoError(t, json.Unmarshal(text, &b))
		return b
	}
	token := layout.MakeTicket(10, 1)
	a := record{Kind: recordEnter, Lock: "mixed", Section: "a", Host: 1, Token: token, At: 10 * ms, Asked: 5 * ms, Granted: 10 * ms, Deadline: 50 * ms}

	aimed := make(chan error, 1)
	go func() { aimed <- s.aim(t.Context(), 1, time.Minute, time.Hour) }()
	require.Eventually(t, func() (asked bool) {
		s.with(func(*judge) { asked = s.aims[1] != nil })
		return asked
	}, 10*time.Second, time.Millisecond)
	require.Zero(t, write(a))
	require.NoError(t, <-aimed)
	require.Equal(t, block{N: 7, Token: token, Long: "a", For: time.Minute}, read())

	a.Kind, a.At, a.N = recordWrite, 20*ms, 8
	require.Zero(t, write(a))
	require.Equal(t, block{N: 8, Token: token}, read())
	a.At, a.N = 51*ms, 9
	require.Equal(t, errRefused, write(a))
	require.EqualValues(t, 8, read().N)
	require.Len(t, seen, 2)
	require.Empty(t, found)

	require.Equal(t, errRefused, write(record{Kind: recordWrong, Lock: "mixed", Section: "b", Text: "nonsense"}))
	require.Len(t, found, 1)
	_, errno := s.Write(t.Context(), nil, []byte("{"), at)
	require.Equal(t, syscall.EINVAL, errno)
}

// The judge learns of a pause before the records that follow it.
func TestStorage_MachineStandsStill_TellsTheJudge(t *testing.T) {
	s := &storage{judge: newJudge(time.Millisecond), aims: map[int]*aim{}}
	s.noticeStall()
	require.Empty(t, s.judge.pauses)
	s.awake = 1 // paused since boot
	require.Greater(t, s.tick(), s.judge.lease)
	require.Len(t, s.judge.pauses[everyHost], 1)
	require.Equal(t, time.Duration(1), s.judge.pauses[everyHost][0].from)
}
