package events

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRestartGoesOn: a log continues after any end of the previous one, whatever its clock was.
func TestRestartGoesOn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(text string) string{
		"closed": func(text string) string { return text },
		"killed within a line": func(text string) string {
			return text + `{"seq":"99999999999999999","at":"20`
		},
		"power cut":          func(text string) string { return text + strings.Repeat("\x00", 5000) },
		"clock of a future":  func(text string) string { return strings.ReplaceAll(text, `{"seq":"`, `{"seq":"9`) },
		"nothing whole left": func(string) string { return `{"seq":"1` },
	} {
		t.Run(name, func(t *testing.T) {
			l, path := kept(t)
			add(l, 1, 2)
			l.Close()
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte(change(string(text))), 0o600))
			l = newLog(t)
			request := l.Add(Event{Kind: Request, Lock: "3"})
			l.Add(Event{Kind: Enter, Lock: "4", Request: request})
			l.Keep(path, self)
			l.Close()
			es := inFile(t, path)
			want := numbers(1, 4)
			if strings.HasPrefix(name, "nothing") {
				want = want[2:]
			}
			require.Equal(t, want, locks(es))
			for i := 1; i < len(es); i++ {
				require.Greater(t, es[i].Seq, es[i-1].Seq)
			}
			require.Equal(t, es[len(es)-2].Seq, es[len(es)-1].Request)
			require.Equal(t, es, all(t, l, Query{}))
		})
	}
}

func TestDamagedLinesAreAGap(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	add(l, 1, 3)
	l.Close()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	lines[1] = "}{\n" + strings.Repeat("x", 2*maxLine) + "\n" + strings.Replace(lines[1], `"kind"`, `kind`, 1)
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
	got := inFile(t, path)
	require.Equal(t, []string{"1", "gap 0", "3"}, locks(got))
	requireOrder(t, got)
}

func TestFilesArePutAside(t *testing.T) {
	t.Parallel()
	const limit = 4 << 10
	l, path := kept(t, func(l *Log) { l.keeper.limit = limit })
	const n = 200
	stop, wrong := make(chan struct{}), make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() { // a concurrent reader gets each event once
		for last := uint64(0); ; last = 0 {
			err := l.Read(Query{}, func(es []Event) error {
				for _, e := range es {
					if e.Seq <= last || e.Kind == Gap {
						return fmt.Errorf("%+v after %d", e, last)
					}
					last = e.Seq
				}
				return nil
			})
			select {
			case <-stop:
				wrong <- err
				return
			default:
			}
			if err != nil {
				wrong <- err
				return
			}
		}
	})
	for i := 1; i <= n; i++ {
		seq := l.Add(Event{Kind: Enter, Lock: fmt.Sprint(i)})
		if i%10 == 0 {
			eventually(t, "it is written", func() bool { return lastIn(path) >= seq || lastIn(path+aside) >= seq })
		}
	}
	close(stop)
	reading.Wait()
	require.NoError(t, <-wrong)
	l.Close()
	for _, p := range []string{path, path + aside} {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(limit))
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	es := inFile(t, path)
	require.Less(t, len(es), n, "what is older is gone")
	require.Equal(t, numbers(n-len(es)+1, n), locks(es))
	require.NoError(t, os.Remove(path)) // as after a crash between two steps
	again := newLog(t)
	again.Keep(path, self)
	require.Greater(t, again.Add(Event{Kind: Enter}), es[len(es)-1].Seq)
}

// TestRotatedWhileOpened_NoFileIsMissing: a reader, of any process, gets two successive files or one.
func TestRotatedWhileOpened_NoFileIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.events")
	ctx, stop := context.WithCancel(t.Context())
	var rotating sync.WaitGroup
	rotating.Go(func() {
		for n := uint8(0); ctx.Err() == nil; n++ {
			assert.NoError(t, os.WriteFile(path+".new", []byte{n}, 0o600))
			_ = os.Rename(path, path+aside) // there is none the first time
			assert.NoError(t, os.Rename(path+".new", path))
		}
	})
	defer rotating.Wait()
	defer stop()
	for range 10_000 {
		files, err := openFiles(path)
		require.NoError(t, err)
		var all []byte
		for _, f := range files {
			b, err := io.ReadAll(f)
			require.NoError(t, err)
			all = append(all, b...)
			f.Close()
		}
		require.True(t, len(all) < 2 || all[1] == all[0]+1, "files %v", all)
	}
}

// TestSlowDisk: Add does not wait for the disk, and a gap stands for the events left out.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	hang, entered := make(chan struct{}), make(chan struct{}, 1)
	l, path := kept(t, func(l *Log) {
		write := l.keeper.write
		l.keeper.write = func(f *os.File, p []byte) (int, error) {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-hang
			return write(f, p)
		}
	})
	add(l, 1, 1)
	<-entered
	const n = 3 * ringSize
	add(l, 2, n)
	began := time.Now()
	l.Close()
	require.Less(t, time.Since(began), generous, "nor does the end")
	close(hang)
	<-l.finished
	es := inFile(t, path)
	require.Equal(t, append([]string{"1", fmt.Sprintf("gap %d", n-1-ringSize)}, numbers(n-ringSize+1, n)...), locks(es))
	requireOrder(t, es)
}

// TestFailingDisk: events are kept in memory, and in the file when it is writable again.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	fails := 0
	l, path := kept(t, func(l *Log) {
		write := l.keeper.write
		l.keeper.write = func(f *os.File, p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if fails > 0 {
				fails--
				n, _ := write(f, p[:len(p)*2/3])
				return n, unix.ENOSPC
			}
			return write(f, p)
		}
	})
	seq := l.Add(Event{Kind: Enter, Lock: "1"})
	eventually(t, "it is written", func() bool { return lastIn(path) == seq })
	mu.Lock()
	fails = 2
	mu.Unlock()
	add(l, 2, 4)
	require.Equal(t, numbers(1, 4), locks(all(t, l, Query{})))
	eventually(t, "it is written again", func() bool { return len(inFile(t, path)) == 4 })
	require.Equal(t, numbers(1, 4), locks(inFile(t, path)), "each event once")
	require.Equal(t, numbers(1, 4), locks(all(t, l, Query{})))
}

func TestFileThatIsTakenOrOdd(t *testing.T) {
	t.Parallel()
	first, path := kept(t)
	add(first, 1, 1)
	eventually(t, "it is written", func() bool { return lastIn(path) != 0 })
	_, err := openFile(path)
	require.ErrorIs(t, err, errTaken)
	_, err = openFile(filepath.Dir(path))
	require.Error(t, err)
	fifo := path + ".fifo"
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	_, err = openFile(fifo)
	require.ErrorContains(t, err, "want a regular one")
	link := path + ".link"
	require.NoError(t, os.Symlink(path, link))
	_, err = openFile(link)
	require.ErrorIs(t, err, unix.ELOOP)

	second := newLog(t)
	second.Keep(path, self)
	add(second, 2, 2)
	first.Close()
	eventually(t, "the successor goes on", func() bool { return len(inFile(t, path)) == 2 })
	require.ErrorContains(t, ReadFile(path+".none", Query{}, nil), "read the journal "+path+".none: no such file")
}

// TestFileRemoved: another program removes the file.
func TestFileRemoved(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	add(l, 1, 1)
	eventually(t, "it is written", func() bool { return lastIn(path) != 0 })
	require.NoError(t, os.Remove(path))
	n := 2
	eventually(t, "there is another one", func() bool {
		add(l, n, n)
		n++
		return lastIn(path) != 0
	})
}

// TestFileReplacedByOneOfALaterClock: another program puts the journal of another clock in its place.
// Events are kept there, too.
func TestFileReplacedByOneOfALaterClock(t *testing.T) {
	t.Parallel()
	l, path := kept(t)
	add(l, 1, 1)
	eventually(t, "it is written", func() bool { return lastIn(path) != 0 })
	const later = maxSeq / 2
	line := fmt.Sprintf(`{"seq":"%d","at":"2126-03-01T03:12:00Z","uptime_ms":1,"kind":"joined"}`+"\n", uint64(later))
	require.NoError(t, os.WriteFile(path+".new", []byte(line), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	n := 2
	eventually(t, "events are added to it", func() bool {
		add(l, n, n)
		n++
		return len(inFile(t, path)) > 2
	})
}
