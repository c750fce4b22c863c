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
	Out     io.Writer
	written chan struct{} // closed when the last message was written; nil if none
}

// Printf queues a message. It does not block.
func (m *Messages) Printf(format string, args ...any) {
	message := fmt.Sprintf("bakeryctl: "+format+"\n", args...)
	before, written := m.written, make(chan struct{})
	m.written = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
		if !term.StopsWriter(m.Out) {
			_, _ = io.WriteString(m.Out, message)
		}
	}()
}

// Flush blocks until all messages are written, MessageTimeout at most.
func (m *Messages) Flush() {
	if m.written == nil {
		return
	}
	select {
	case <-m.written:
	case <-time.After(MessageTimeout):
	}
}
