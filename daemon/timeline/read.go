package timeline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// maxLine bounds a line that is read, in bytes; those written are far below it.
const maxLine = 1 << 20

// ErrNotJournal is returned when a file is to be read that has no events.
var ErrNotJournal = errors.New("no journal of events")

// ReadFile reads the events of a host: a file of its bakeryd, with the one that
// was put aside before, or what `bakeryctl events --json` has printed. It
// returns ErrNotJournal, with the line that shows it, or an error of the file.
func ReadFile(path string) (Source, error) {
	s := Source{Name: path}
	for _, p := range []string{path + ".1", path} {
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not wait for whatever else is there
		if errors.Is(err, os.ErrNotExist) && p != path {
			continue
		}
		if err != nil {
			return s, err
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

// Read reads the events of a host, a line each. Lines that are damaged, as the
// last one is of a bakeryd that was killed, are counted; where there is nothing
// else it returns ErrNotJournal. An empty journal is one.
func Read(r io.Reader, name string) (Source, error) {
	s := Source{Name: name}
	in := bufio.NewReaderSize(r, 64<<10)
	firstBad, bad := 0, ""
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return s, fmt.Errorf("read %s: line %d: %w", name, n, bare(err))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e events.Event
			if json.Unmarshal(line, &e) == nil && e.Kind != "" && !e.At.IsZero() {
				s.Events = append(s.Events, e)
			} else {
				s.Damaged++
				if firstBad == 0 {
					firstBad, bad = n, string(line[:min(len(line), 60)])
				}
			}
		}
		if err != nil {
			break
		}
	}
	if len(s.Events) == 0 && s.Damaged > 0 {
		return s, fmt.Errorf("read %s: %w: line %d is %q", name, ErrNotJournal, firstBad, bad)
	}
	return s, nil
}

// readLine reads a line; of one that is too long the beginning.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line) < maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// bare takes the path off an error that is about to get it.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Lockspace is that of a journal, if its name is still that of a bakeryd's file: UUID-ID.events.
func (s *Source) Lockspace() string {
	const uuidLen = 36
	name := strings.TrimSuffix(filepath.Base(s.Name), ".1")
	name, ok := strings.CutSuffix(name, ".events")
	if !ok || len(name) < uuidLen+2 || name[uuidLen] != '-' {
		return ""
	}
	if _, err := layout.ParseUUID(name[:uuidLen]); err != nil {
		return ""
	}
	return name[:uuidLen]
}
