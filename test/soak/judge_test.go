package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

const ms = time.Millisecond

// story is a history that is made up.
type story struct {
	t *testing.T
	j *judge
}

func newStory(t *testing.T) story { return story{t, newJudge(40 * ms)} }

// part is a section of it, with a deadline far away unless it is set.
type part struct {
	s story
	a act
}

func (s story) section(name, lock string, host int, mode layout.Mode, token layout.Ticket) *part {
	return &part{s, act{Section: name, Lock: lock, Host: host, Mode: mode, Token: token, Deadline: time.Hour}}
}

func (p *part) does(kind string, at time.Duration, change ...func(*act)) bool {
	a := p.a
	a.Kind, a.At = kind, at
	for _, c := range change {
		c(&a)
	}
	return p.s.j.take(a)
}

// enters has it asked for 5 ms before, and granted at that moment.
func (p *part) enters(at time.Duration) bool {
	return p.does(actEnter, at, func(a *act) { a.Asked, a.Granted = at-5*ms, at })
}

func writes(n uint64) func(*act) { return func(a *act) { a.N = n } }

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
	require.True(t, a.does(actWrite, 20*ms, writes(1)))
	require.True(t, a.does(actLeave, 30*ms))
	require.True(t, b.enters(40*ms))
	require.True(t, b.does(actWrite, 50*ms, writes(2)))
	require.True(t, b.does(actLeave, 60*ms))
	s.findsNothing()
	require.Equal(t, 2, s.j.sections)
}

func TestDoubleHold(t *testing.T) {
	for name, tell := range map[string]func(a, b *part){
		"the first goes on":     func(a, b *part) { a.enters(10 * ms); b.enters(20 * ms); a.does(actBeat, 30*ms) },
		"the first leaves late": func(a, b *part) { a.enters(10 * ms); b.enters(20 * ms); a.does(actLeave, 21*ms) },
		"told in another order": func(a, b *part) {
			a.enters(10 * ms)
			a.does(actBeat, 30*ms)
			b.does(actEnter, 31*ms, func(a *act) { a.Asked, a.Granted = 5*ms, 20*ms })
		},
		"the first enters last": func(a, b *part) {
			b.enters(20 * ms)
			a.does(actEnter, 30*ms, func(a *act) { a.Asked, a.Granted = 5*ms, 10*ms })
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
	require.True(t, a.does(actLeave, 30*ms))
	require.True(t, b.does(actLeave, 40*ms))
	s.findsNothing()
}

// TestCommandBesideAnother: a command has no deadline, and no excuse unless its host stood still.
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
			a.does(actBeat, 11*ms)
			b.enters(40 * ms)
			require.False(t, a.does(actWrite, 60*ms, writes(1)))
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
		require.False(t, a.does(actWrite, 50*ms+2*stillStopping))
		s.finds("two have")
	})
}

func TestLateWriterIsRefused(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.a.Deadline = 30 * ms
	a.enters(10 * ms)
	b.enters(40 * ms)
	require.False(t, a.does(actWrite, 50*ms, writes(1)))
	s.findsNothing()
	require.Equal(t, map[string]int{"past its deadline": 1}, s.j.refusals)
	require.True(t, b.does(actWrite, 60*ms, writes(1)))
	s.findsNothing()
}

// TestLateIsRefused: a section is over by its deadline, or a pause of its host, whether another was granted or not.
func TestLateIsRefused(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Exclusive, 20)
	a.a.Deadline, b.a.Deadline = 30*ms, 0
	a.enters(10 * ms)
	b.enters(11 * ms)
	s.j.paused(2, pause{12 * ms, 50 * ms})
	require.False(t, a.does(actLeave, 31*ms))
	require.False(t, b.does(actLeave, 51*ms))
	require.False(t, b.does(actBeat, 52*ms))
	require.Empty(t, s.j.locks["semaphore"].members)
	s.findsNothing()
	require.False(t, s.section("c", "hot", 2, layout.Exclusive, 10).does(actEnter, 51*ms, func(a *act) { a.Asked, a.Granted, a.Deadline = 1*ms, 51*ms, 0 }))
}

// TestBegunBefore: what a command had begun before it was killed may come late.
func TestBegunBefore(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	b.enters(40 * ms)
	require.False(t, a.does(actBeat, 39*ms))
	s.findsNothing()
	require.False(t, a.does(actBeat, 41*ms))
	s.finds("two have")
}

func TestLostUpdate(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	a.does(actWrite, 20*ms, writes(1))
	a.does(actLeave, 30*ms)
	b.enters(40 * ms)
	b.does(actWrite, 50*ms, writes(1))
	s.finds("an update was lost")
}

func TestReaderSeesAWrite(t *testing.T) {
	s := newStory(t)
	a := s.section("a", "mixed", 1, layout.Shared, 10)
	a.enters(10 * ms)
	a.does(actBeat, 20*ms, writes(7))
	a.does(actLeave, 30*ms, writes(8))
	s.finds("the counter moved under a reader")
}

func TestTokenGoesBack(t *testing.T) {
	for _, token := range []layout.Ticket{19, 20} {
		s := newStory(t)
		a, b := s.section("a", "hot", 1, layout.Exclusive, 20), s.section("b", "hot", 2, layout.Exclusive, token)
		a.enters(10 * ms)
		a.does(actLeave, 20*ms)
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

// TestUpgradeBesideAReader, and with a token that is too small.
func TestUpgrade(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "mixed", 1, layout.Shared, 10), s.section("b", "mixed", 2, layout.Shared, 20)
	upgrade := func(a *act) { a.Mode, a.Asked, a.Granted = layout.Exclusive, 30*ms, 40*ms }
	a.enters(10 * ms)
	b.enters(20 * ms)
	a.does(actMode, 41*ms, upgrade)
	s.findsNothing() // b may be dead
	b.does(actBeat, 50*ms)
	s.finds("two have")

	s = newStory(t)
	w := s.section("w", "mixed", 2, layout.Exclusive, 20)
	a = s.section("a", "mixed", 1, layout.Shared, 10)
	w.enters(5 * ms)
	w.does(actLeave, 8*ms)
	a.enters(10 * ms)
	a.does(actMode, 41*ms, upgrade)
	s.finds("a token went back")
}

func TestDowngrade(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "mixed", 1, layout.Exclusive, 10), s.section("b", "mixed", 2, layout.Shared, 20)
	a.enters(10 * ms)
	a.does(actMode, 20*ms, func(a *act) { a.Mode = layout.Shared })
	b.enters(30 * ms)
	a.does(actBeat, 40*ms)
	s.findsNothing()
}

func TestPermits(t *testing.T) {
	s := newStory(t)
	a, b, c := s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Exclusive, 20), s.section("c", "semaphore", 3, layout.Exclusive, 30)
	a.enters(10 * ms)
	b.enters(20 * ms)
	c.enters(30 * ms)
	a.does(actBeat, 40*ms)
	s.findsNothing() // b may be dead
	b.does(actBeat, 41*ms)
	s.finds("more than 2")

	s = newStory(t)
	a, b, c = s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Exclusive, 20), s.section("c", "semaphore", 3, layout.Exclusive, 30)
	a.enters(10 * ms)
	b.enters(20 * ms)
	a.does(actLeave, 25*ms)
	c.enters(30 * ms)
	b.does(actBeat, 40*ms)
	c.does(actBeat, 41*ms)
	s.findsNothing()
	s.section("d", "semaphore", 3, layout.Exclusive, 40).enters(42 * ms)
	s.findsNothing()
	c.does(actBeat, 43*ms)
	s.finds("two have") // of one host
}

func TestPermitsAndReaders(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "semaphore", 1, layout.Exclusive, 10), s.section("b", "semaphore", 2, layout.Shared, 20)
	a.enters(10 * ms)
	b.enters(20 * ms)
	a.does(actBeat, 30*ms)
	s.finds("two have")
}

func TestValueGoesBack(t *testing.T) {
	reads := func(token layout.Ticket) func(*act) { return func(a *act) { a.ValueToken = token } }
	s := newStory(t)
	a, b := s.section("a", "value", 1, layout.Exclusive, 10), s.section("b", "value", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	a.does(actValued, 20*ms)
	a.does(actLeave, 30*ms)
	b.enters(40 * ms)
	b.does(actValue, 50*ms, reads(10))
	s.findsNothing()
	b.does(actValue, 50*ms, reads(9))
	s.finds("a value went back")
}

// TestHostWithoutPower: what was there is over; who enters next is not disturbed.
func TestHostWithoutPower(t *testing.T) {
	s := newStory(t)
	a, b := s.section("a", "hot", 1, layout.Exclusive, 10), s.section("b", "hot", 2, layout.Exclusive, 20)
	a.enters(10 * ms)
	s.j.dead(1)
	require.False(t, a.does(actBeat, 11*ms))
	require.True(t, b.enters(20*ms))
	s.findsNothing()
}

func TestComplaint(t *testing.T) {
	s := newStory(t)
	s.section("a", "hot", 1, layout.Exclusive, 10).does(actWrong, 5*ms, func(a *act) { a.Text = "nonsense" })
	s.finds("nonsense")
}
