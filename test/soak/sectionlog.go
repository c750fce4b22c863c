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

// A section log is a file in which clients record their sections: a line at the begin, when the
// store accepts the first record, and at the end. history.go checks the logs against each other at
// the end.

// entry is a line: the state of a section, or of its part with one mode.
type entry struct {
	Section  string        `json:"section"`
	Lock     string        `json:"lock"`
	Host     int           `json:"host"`
	Mode     layout.Mode   `json:"mode"`
	Token    layout.Ticket `json:"token"`
	Asked    time.Duration `json:"asked"` // request for the lock, or for this mode
	Since    time.Duration `json:"since"`
	Entered  bool          `json:"entered,omitzero"` // the store accepted its first record
	End      time.Duration `json:"end,omitzero"`
	How      string        `json:"how,omitzero"` // how it ended; "" if it was killed or has not ended
	Deadline time.Duration `json:"deadline,omitzero"`

	Failed string `json:"failed,omitzero"` // only field of a failed request for a lock
}

type sectionLog struct {
	mu   sync.Mutex // held during the write of a line
	file *os.File
}

func openSectionLog(path string) (*sectionLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &sectionLog{file: f}, err
}

func (d *sectionLog) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.file.Write(append(b, '\n'))
	return err
}

// readSectionLogs returns the parts of all sections, each from its last line, and counts the failed
// requests.
func readSectionLogs(paths []string) (parts []entry, failed map[string]int, err error) {
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
