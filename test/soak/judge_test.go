package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

const ms = time.Millisecond

// story is an invented history.
type story struct {
	t *testing.T
	j *judge
}

func newStory(t *testing.T) story { return story{t, newJudge(40 * ms)} }

// part is a section of it, with a distant deadline unless it is set.
type part struct {
	s story
	a record
}

func (s story) section(name, lock string, host int, mode layout.Mode, token layout.Ticket) *part {
	return &part{s, record{Section: name, Lock: lock, Host: host, Mode: mode, Token: token, Deadline: time.Hour}}
}

func (p *part) does(kind string, at time.Duration, change ...func(*record)) bool {
	a := p.a
	a.Kind, a.At = kind, at
	for _, c := range change {
		c(&a)
	}
	return p.s.j.take(a)
}

// enters makes it enter at the moment of its grant, requested 5 ms before.
func (p *part) enters(at time.Duration) bool {
	return p.does(recordEnter, at, func(a *record) { a.Asked, a.Granted = at-5*ms, at })
}

func writes(n uint64) func(*record) { return func(a *record) { a.N = n } }

func (s story) finds(what string) {
	s.t.Helper()
	require.NotEmpty(s.t, s.j.found)
	require.Contains(s.t, s.j.found[0], what)
}

func (s story) findsNothing() { s.t.Helper(); require.Empty(s.t, s.j.found) }

func TestGoodStory(t *testing.T) {
	s := newStory(t)
	a := s.section("a", "hot", 1, layout.Exclusive, 10)
	b := s.section("b", "hot", 2, layout.Exclusive, 20)
	require.True(t, a.enters(10*ms))
	require.True(t, a.does(recordWrite, 20*ms, writes(1)))
	require.True(t, a.does(recordLeave, 30*ms))
	require.True(t, b.enters(40*ms))
	require.True(t, b.does(recordWrite, 50*ms, writes(2)))
	require.True(t, b.does(recordLeave, 60*ms))
	s.findsNothing()
	require.Equal(t, 2, s.j.sections)
}

func TestDoubleHold(t *testing.T) {
	for name, tell := range map[string]func(a, b *part){
		"the first goes on":     func(a, b *part) { a.enters(10 * ms); b.enters(20 * ms); a.does(recordBeat, 30*ms) },
		"the first leaves late": func(a, b *part) { a.enters(10 * ms); b.enters(20 * ms); a.does(recordLeave, 21*ms) },
		"told in another order": func(a, b *part) {
			a.enters(10 * ms)
			a.does(recordBeat, 30*ms)
			b.does(recordEnter, 31*ms, func(a *record) { a.Asked, a.Granted = 5*ms, 20*ms })
		},
		"the first enters last": func(a, b *part) {
			b.enters(20 * ms)
			a.does(recordEnter, 30*ms, func(a *record) { a.Asked, a.Granted = 5*ms, 10*ms })
		},
	} {
		for _, modes := range [][2]layout.Mode{{layout.Exclusive, layout.Exclusive}, {layout.Exclusive, layout.Shared}, {layout.Shared, layout.Exclusive}} {
			t.Run(name, func(t *testing.T) {
				s := newStory(t)
				tell(s.section("a", "mixed", 1, modes[0], 10), s.section("b", "mixed", 2, modes[1], 20))
				s.finds(`two have "mixed" at once`)
			})
		}
	}
}

func TestSharedTogether(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "mixed", 1, layout.Shared, 10), s.section("b", "mixed", 2, layout.Shared, 20)
	a.enters(10 * ms)
	b.enters(20 * ms)
	require.True(t, a.does(recordLeave, 30*ms))
	require.True(t, b.does(recordLeave, 40*ms))
	s.findsNothing()
}

// TestCommandBesideAnother: a command has no deadline, and only a pause of its host excuses it.
func TestCommandBesideAnother(t *testing.T) {
	for name, c := range map[string]struct {
		host  int
		pause pause
		found bool
	}{
		"no pause":                    {found: true},
		"a pause":                     {host: 1, pause: pause{12 * ms, 50 * ms}},
		"one of another host":         {host: 2, pause: pause{12 * ms, 50 * ms}, found: true},
		"one of the machine":          {host: everyHost, pause: pause{12 * ms, 50 * ms}},
		"one that goes on":            {host: 1, pause: pause{12 * ms, 0}},
		"one before":                  {host: 1, pause: pause{1 * ms, 10 * ms}, found: true},
		"one that is over in no time": {host: 1, pause: pause{12 * ms, 30 * ms}, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			if c.pause != (pause{}) {
				s.j.paused(c.host, c.pause)
			}
			a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
			a.a.Deadline = 0
			a.enters(10 * ms)
			a.does(recordBeat, 11*ms)
			b.enters(40 * ms)
			require.False(t, a.does(recordWrite, 60*ms, writes(1)))
			require.Equal(t, c.found, len(s.j.found) > 0, "%v", s.j.found)
		})
	}
	t.Run("too long after a pause", func(t *testing.T) {
		s := newStory(t)
		s.j.paused(1, pause{12 * ms, 50 * ms})
		a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
		a.a.Deadline = 0
		a.enters(10 * ms)
		b.enters(40 * ms)
		require.False(t, a.does(recordWrite, 50*ms+2*stillStopping))
		s.finds("two have")
	})
}

func TestLateWriterIsRefused(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.a.Deadline = 30 * ms
	a.enters(10 * ms)
	b.enters(40 * ms)
	require.False(t, a.does(recordWrite, 50*ms, writes(1)))
	s.findsNothing()
	require.Equal(t, map[string]int{"past its deadline": 1}, s.j.refusals)
	require.True(t, b.does(recordWrite, 60*ms, writes(1)))
	s.findsNothing()
}

// TestLateIsRefused: a section is over at its deadline, or after a pause of its host, even if no
// other was granted.
func TestLateIsRefused(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Exclusive, 20)
	a.a.Deadline, b.a.Deadline = 30*ms, 0
	a.enters(10 * ms)
	b.enters(11 * ms)
	s.j.paused(2, pause{12 * ms, 50 * ms})
	require.False(t, a.does(recordLeave, 31*ms))
	require.False(t, b.does(recordLeave, 51*ms))
	require.False(t, b.does(recordBeat, 52*ms))
	require.Empty(t, s.j.locks["semaphore"].members)
	s.findsNothing()
	require.False(t, s.section("c", "hot", 2, layout.Exclusive, 10).does(recordEnter, 51*ms, func(a *record) { a.Asked, a.Granted, a.Deadline = 1*ms, 51*ms, 0 }))
}

// TestBegunBefore: a killed command's write may land late.
func TestBegunBefore(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	b.enters(40 * ms)
	require.False(t, a.does(recordBeat, 39*ms))
	s.findsNothing()
	require.False(t, a.does(recordBeat, 41*ms))
	s.finds("two have")
}

func TestLostUpdate(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	a.does(recordWrite, 20*ms, writes(1))
	a.does(recordLeave, 30*ms)
	b.enters(40 * ms)
	b.does(recordWrite, 50*ms, writes(1))
	s.finds("an update was lost")
}

func TestReaderSeesAWrite(t *testing.T) {
	s := newStory(t)
	a := s.section("a", "mixed", 1, layout.Shared, 10)
	a.enters(10 * ms)
	a.does(recordBeat, 20*ms, writes(7))
	a.does(recordLeave, 30*ms, writes(8))
	s.finds("the counter moved under a reader")
}

func TestTokenGoesBack(t *testing.T) {
	for _, token := range []layout.Ticket{19, 20} {
		s := newStory(t)
		a, b := s.section("a", "hot", 1, layout.Exclusive, 20), s.section("b", "hot", 2, layout.Exclusive, token)
		a.enters(10 * ms)
		a.does(recordLeave, 20*ms)
		b.enters(30 * ms)
		s.finds("a token went back")
	}
	s := newStory(t)
	a, b := s.section("a", "semaphore", 1, layout.Exclusive, 20), s.section("b", "semaphore", 2, layout.Exclusive, 10)
	a.enters(10 * ms)
	b.enters(20 * ms)
	s.findsNothing()
	s.section("c", "semaphore", 1, layout.Exclusive, 10).enters(30 * ms)
	s.finds("a token went back")
}

// TestUpgrade next to a reader, and with a token that is too small.
func TestUpgrade(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "mixed", 1, layout.Shared, 10), s.section("b", "mixed", 2, layout.Shared, 20)
	upgrade := func(a *record) { a.Mode, a.Asked, a.Granted = layout.Exclusive, 30*ms, 40*ms }
	a.enters(10 * ms)
	b.enters(20 * ms)
	a.does(recordMode, 41*ms, upgrade)
	s.findsNothing() // b may be dead
	b.does(recordBeat, 50*ms)
	s.finds("two have")

	s = newStory(t)
	w := s.section("w", "mixed", 2, layout.Exclusive, 20)
	a = s.section("a", "mixed", 1, layout.Shared, 10)
	w.enters(5 * ms)
	w.does(recordLeave, 8*ms)
	a.enters(10 * ms)
	a.does(recordMode, 41*ms, upgrade)
	s.finds("a token went back")
}

func TestDowngrade(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "mixed", 1, layout.Exclusive, 10), s.section("b", "mixed", 2, layout.Shared, 20)
	a.enters(10 * ms)
	a.does(recordMode, 20*ms, func(a *record) { a.Mode = layout.Shared })
	b.enters(30 * ms)
	a.does(recordBeat, 40*ms)
	s.findsNothing()
}

func TestPermits(t *testing.T) {
	s := newStory(t)
	a, b, c := s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Exclusive, 20), s.section("c", "semaphore", 3, layout.Exclusive, 30)
	a.enters(10 * ms)
	b.enters(20 * ms)
	c.enters(30 * ms)
	a.does(recordBeat, 40*ms)
	s.findsNothing() // b may be dead
	b.does(recordBeat, 41*ms)
	s.finds("more than 2")

	s = newStory(t)
	a, b, c = s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Exclusive, 20), s.section("c", "semaphore", 3, layout.Exclusive, 30)
	a.enters(10 * ms)
	b.enters(20 * ms)
	a.does(recordLeave, 25*ms)
	c.enters(30 * ms)
	b.does(recordBeat, 40*ms)
	c.does(recordBeat, 41*ms)
	s.findsNothing()
	s.section("d", "semaphore", 3, layout.Exclusive, 40).enters(42 * ms)
	s.findsNothing()
	c.does(recordBeat, 43*ms)
	s.finds("two have") // on one host
}

func TestPermitsAndReaders(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Shared, 20)
	a.enters(10 * ms)
	b.enters(20 * ms)
	a.does(recordBeat, 30*ms)
	s.finds("two have")
}

func TestValueGoesBack(t *testing.T) {
	reads := func(token layout.Ticket) func(*record) { return func(a *record) { a.ValueToken = token } }
	s := newStory(t)
	a, b := s.section("a", "value", 1, layout.Exclusive, 10), s.section("b", "value", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	a.does(recordValued, 20*ms)
	a.does(recordLeave, 30*ms)
	b.enters(40 * ms)
	b.does(recordValue, 50*ms, reads(10))
	s.findsNothing()
	b.does(recordValue, 50*ms, reads(9))
	s.finds("a value went back")
}

// TestHostWithoutPower: its sections are over, and the next one is not disturbed.
func TestHostWithoutPower(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	s.j.dead(1)
	require.False(t, a.does(recordBeat, 11*ms))
	require.True(t, b.enters(20*ms))
	s.findsNothing()
}

func TestComplaint(t *testing.T) {
	s := newStory(t)
	s.section("a", "hot", 1, layout.Exclusive, 10).does(recordWrong, 5*ms, func(a *record) { a.Text = "nonsense" })
	s.finds("nonsense")
}
