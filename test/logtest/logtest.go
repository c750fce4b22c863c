// Package logtest keeps what a program writes, while a test reads it.
package logtest

import (
	"bytes"
	"sync"
)

// Log keeps a log, or other output, of goroutines. The zero value is empty.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write appends to the log. It never returns an error.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
