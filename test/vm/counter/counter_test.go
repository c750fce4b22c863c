package counter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/test/disktest"
)

const hosts = 3

// rig is a disk on which hosts count.
type rig struct {
	t    *testing.T
	disk blockdev.Device
}

func newRig(t *testing.T) rig {
	return rig{t, disktest.NewMemory((hosts+1)*NotesSize, SectorSize, 4096).Open()}
}

// ReadAt implements io.ReaderAt.
func (r rig) ReadAt(p []byte, off int64) (int, error) {
	b := blockdev.Alloc(len(p))
	err := r.disk.Read(b, off)
	return copy(p, b), err
}

// section runs a section; during, if not nil, is called while it works.
func (r rig) section(host int, token uint64, during func()) error {
	return r.by(r.disk, Plain(r.disk), host, token, during)
}

func (r rig) by(disk Disk, replace Replace, host int, token uint64, during func()) error {
	return Section{Disk: disk, Replace: replace, Host: host, Token: token, Wait: func(Counter, func() error) error {
		if during != nil {
			during()
		}
		return nil
	}}.Run()
}

func (r rig) done(host int, token uint64) {
	r.t.Helper()
	require.NoError(r.t, r.section(host, token, nil))
}

func (r rig) check() Report {
	r.t.Helper()
	report, err := Check(r, hosts)
	require.NoError(r.t, err)
	return report
}

// blames checks that the problems have exactly these texts, in this order.
func (r rig) blames(texts ...string) {
	r.t.Helper()
	problems := r.check().Problems
	require.Len(r.t, problems, len(texts), "%q", problems)
	for i, text := range texts {
		require.Contains(r.t, problems[i], text)
	}
}

func TestSectionsAlone(t *testing.T) {
	r := newRig(t)
	r.blames()
	for token := uint64(1); token <= 30; token++ {
		r.done(1+int(token)%hosts, token*10)
	}
	report := r.check()
	require.Empty(t, report.Problems)
	require.Empty(t, report.Interrupted)
	require.Equal(t, 30, report.Sections)
	require.Equal(t, map[int]int{1: 10, 2: 10, 3: 10}, report.Of)
	require.Equal(t, uint64(300), report.Last)
	require.Equal(t, Counter{Token: 300, Count: 30, Host: 1}, report.Counter)
}

// dying is a host's path to the disk. The host dies before or after a write.
type dying struct {
	Disk
	left   int
	landed bool // the last write lands
}

var errDied = errors.New("died")

func (d *dying) Write(p []byte, off int64) error {
	d.left--
	if d.left > 0 || d.left == 0 && d.landed {
		if err := d.Disk.Write(p, off); err != nil {
			return err
		}
	}
	if d.left <= 0 {
		return errDied
	}
	return nil
}

// However often and wherever hosts die, later sections are correct.
func TestDeathWithinASection(t *testing.T) {
	for first := range 8 {
		for second := range 8 {
			t.Run(fmt.Sprintf("%d,%d", first, second), func(t *testing.T) {
				r := newRig(t)
				r.done(2, 1)
				for i, n := range []int{first, second} {
					way := &dying{r.disk, n/2 + 1, n%2 == 1}
					require.ErrorIs(t, r.by(way, Plain(way), 1, uint64(2+i), nil), errDied)
					r.blames()
				}
				r.done(3, 4)
				r.done(2, 5)
				r.blames()
				require.LessOrEqual(t, len(r.check().Interrupted), 2)
			})
		}
	}
}

func TestLostUpdate(t *testing.T) {
	r := newRig(t)
	r.done(1, 1)
	require.NoError(t, r.section(1, 2, func() { r.done(2, 3); r.done(2, 4) }))
	r.blames("token 3 of host 2 found count 1 with token 2", "counter has count 2 with token 2")
	r.done(3, 5)
	r.blames("token 3 of host 2 found count 1 with token 2", "token 5 of host 3 found count 2 with token 2")
}

// A host killed right after its late write left no note of it; the next section found it.
func TestLateWriteOfADeadHost(t *testing.T) {
	r := newRig(t)
	way := &dying{r.disk, 3, true}
	require.Error(t, r.by(way, Plain(way), 1, 2, func() { r.done(2, 3); r.done(3, 4) }))
	r.blames("counter has count 1 with token 2")
	r.done(3, 5)
	r.blames("token 5 of host 3 found count 1 with token 2")
}

func TestSectionsAtOnce(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.section(1, 1, func() {
		require.NoError(t, r.section(2, 2, func() { r.done(3, 3) }))
	}))
	require.NotEmpty(t, r.check().Problems)
}

func TestTokensOutOfOrder(t *testing.T) {
	r := newRig(t)
	r.done(1, 5)
	r.done(2, 4)
	r.blames("token 4 of host 2 found the counter with token 5, which is not smaller",
		"token 4 of host 2 found count 1 with token 5, which is not what the blank disk left",
		"token 5 of host 1 found count 0", "counter has count 2 with token 4")
}

func TestTokenTwice(t *testing.T) {
	r := newRig(t)
	r.done(1, 5)
	r.done(2, 5)
	require.Contains(t, strings.Join(r.check().Problems, "\n"), "token 5 was given to host 1 and to host 2")
	r = newRig(t)
	r.done(1, 5)
	r.done(1, 5)
	require.Contains(t, strings.Join(r.check().Problems, "\n"), "host 1 began a section with token 5 after one with token 5")
}

// A writer that checks the token before it writes does not write, and nothing is lost.
func TestChecked(t *testing.T) {
	r := newRig(t)
	r.done(1, 1)
	late := r.by(r.disk, Checked(r.disk), 1, 2, func() { r.done(2, 3) })
	require.ErrorIs(t, late, ErrOvertaken)
	r.done(3, 4)
	r.blames()
	require.Equal(t, []Begun{{2, 1}}, r.check().Interrupted)
}

// A section that looks finds immediately that another one runs, even if it writes nothing more.
func TestLook(t *testing.T) {
	r := newRig(t)
	s := Section{Disk: r.disk, Replace: Plain(r.disk), Host: 1, Token: 1, Wait: func(_ Counter, look func() error) error {
		require.NoError(t, look())
		r.done(2, 2)
		return look()
	}}
	require.ErrorIs(t, s.Run(), ErrOvertaken)
	r.blames("token 1 of host 1 was under way when the counter had token 2")
}

func TestDamage(t *testing.T) {
	r := newRig(t)
	r.done(1, 1)
	r.done(1, 2)
	junk := blockdev.Alloc(SectorSize)
	copy(junk, "junk")
	require.NoError(t, r.disk.Write(junk, NotesSize))
	r.blames("note 0 of host 1 is damaged", "host 1 ended a section with token 1 that it did not begin", "token 2 of host 1 found count 1 with token 1, which is not what the blank disk left")
}
