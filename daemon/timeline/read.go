package timeline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// maxLine bounds a line that is read, in bytes. Written lines are much shorter.
const maxLine = 1 << 20

// ErrNotJournal is returned when a file has no events.
var ErrNotJournal = errors.New("no journal of events")

// ReadFile reads the events of a host: a file of its bakeryd together with the rotated one, or
// the output of `bakeryctl events --json`. It returns ErrNotJournal with the line that shows it,
// or an error of the file.
func ReadFile(path string) (Source, error) {
	s := Source{Name: path}
	for _, p := range []string{path + ".1", path} {
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not block on a FIFO or device
		if errors.Is(err, os.ErrNotExist) && p != path {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("read %s: %w", p, text.WithoutPath(err))
		}
		part, err := Read(f, p)
		f.Close()
		if err != nil {
			return s, err
		}
		s.Events, s.Damaged = append(s.Events, part.Events...), s.Damaged+part.Damaged
	}
	return s, nil
}

// Read reads the events of a host, one on each line. It counts damaged lines, such as the last
// one of a killed bakeryd. If there are only damaged lines it returns ErrNotJournal. An empty
// journal is valid.
func Read(r io.Reader, name string) (Source, error) {
	s := Source{Name: name}
	in := bufio.NewReaderSize(r, maxLine)
	firstBad := ""
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		last := errors.Is(err, io.EOF)
		if err != nil && !last && !errors.Is(err, bufio.ErrBufferFull) { // the parts of a long line are damaged
			return s, fmt.Errorf("read %s: line %d: %w", name, n, text.WithoutPath(err))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e events.Event
			if e.Parse(line) == nil && e.Kind != "" && !e.At.IsZero() {
				s.Events = append(s.Events, e)
			} else if s.Damaged++; s.Damaged == 1 {
				firstBad = fmt.Sprintf("line %d is %q", n, line[:min(len(line), 60)])
			}
		}
		if last {
			break
		}
	}
	if len(s.Events) == 0 && s.Damaged > 0 {
		return s, fmt.Errorf("read %s: %w: %s", name, ErrNotJournal, firstBad)
	}
	return s, nil
}

// Lockspace returns the lockspace in the file's name, if that is a bakeryd's: UUID-ID.events.
func (s *Source) Lockspace() string {
	name, kept := strings.CutSuffix(strings.TrimSuffix(filepath.Base(s.Name), ".1"), ".events")
	name = name[:max(0, strings.LastIndexByte(name, '-'))]
	if _, err := layout.ParseUUID(name); err != nil || !kept {
		return ""
	}
	return name
}
