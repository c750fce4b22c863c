package supervise

import (
	"fmt"
	"io"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

// MessageTimeout is the timeout for writing messages to a blocked reader.
const MessageTimeout = time.Second

// Messages writes messages to standard error in the background: a blocked reader must not delay the
// end of a command.
type Messages struct {
	Out io.Writer
	Background
}

// Printf queues a message. It does not block.
func (m *Messages) Printf(format string, args ...any) {
	message := fmt.Sprintf("bakeryctl: "+format+"\n", args...)
	m.Go(func() {
		if !term.StopsWriter(m.Out) {
			_, _ = io.WriteString(m.Out, message)
		}
	})
}

// Background runs functions one after the other. Its methods must be called from one goroutine.
type Background struct {
	last chan struct{} // closed when the last function has returned; nil if none
}

// Go queues f. It does not block.
func (b *Background) Go(f func()) {
	before, done := b.last, make(chan struct{})
	b.last = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	}()
}

// Busy reports whether a function is queued or runs.
func (b *Background) Busy() bool { return b.last != nil && !IsClosed(b.last) }

// Flush blocks until all functions have returned, MessageTimeout at most.
func (b *Background) Flush() {
	if b.Busy() {
		select {
		case <-b.last:
		case <-time.After(MessageTimeout):
		}
	}
}
