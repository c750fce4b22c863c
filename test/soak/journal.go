package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// A diary is what clients write down of their own sections, in a file of their
// own: a line as each begins, is let in by the store and has ended. It is
// held against the others at the end (history.go).

// entry is a line: what is known by then of a section, or of the part of it that has one mode.
type entry struct {
	Section  string        `json:"section"`
	Lock     string        `json:"lock"`
	Host     int           `json:"host"`
	Mode     layout.Mode   `json:"mode"`
	Token    layout.Ticket `json:"token"`
	Asked    time.Duration `json:"asked"` // for the lock, or for this mode of it
	Since    time.Duration `json:"since"`
	Entered  bool          `json:"entered,omitzero"` // the store has let it in
	End      time.Duration `json:"end,omitzero"`
	How      string        `json:"how,omitzero"` // empty: it was killed, or is not over
	Deadline time.Duration `json:"deadline,omitzero"`

	Failed string `json:"failed,omitzero"` // instead of all that: a lock was asked for in vain
}

type diary struct {
	mu   sync.Mutex // one line at a time
	file *os.File
}

func openDiary(path string) (*diary, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &diary{file: f}, err
}

func (d *diary) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.file.Write(append(b, '\n'))
	return err
}

// readDiaries returns the parts of all sections, each by its last line, and how often what failed.
func readDiaries(paths []string) (parts []entry, failed map[string]int, err error) {
	type key struct {
		section string
		since   time.Duration
	}
	failed = map[string]int{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		last, order := map[key]entry{}, []key(nil)
		in := bufio.NewScanner(f)
		for in.Scan() {
			var e entry
			if err := json.Unmarshal(in.Bytes(), &e); err != nil {
				if bytes.HasSuffix(in.Bytes(), []byte("}")) {
					return nil, nil, errors.Join(fmt.Errorf("%s: %w: %s", path, err, in.Bytes()), f.Close())
				}
				continue // its writer was killed
			}
			if e.Failed != "" {
				failed[e.Failed]++
				continue
			}
			k := key{e.Section, e.Since}
			if _, ok := last[k]; !ok {
				order = append(order, k)
			}
			last[k] = e
		}
		if err := errors.Join(in.Err(), f.Close()); err != nil {
			return nil, nil, err
		}
		for _, k := range order {
			parts = append(parts, last[k])
		}
	}
	return parts, failed, nil
}
