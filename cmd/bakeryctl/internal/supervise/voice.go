package supervise

import (
	"fmt"
	"io"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

// SayWithin bounds the wait for somebody who takes in no more of what is said.
const SayWithin = time.Second

// Voice writes to standard error in the background: what is under a lock has to be stopped whether
// or not anybody reads what we have to say.
type Voice struct {
	Out  io.Writer
	said chan struct{} // closed when the last message was written; nil: there was none
}

// Say writes a message after those before it. It does not block.
func (v *Voice) Say(format string, args ...any) {
	message := fmt.Sprintf("bakeryctl: "+format+"\n", args...)
	before, written := v.said, make(chan struct{})
	v.said = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
		if !term.StopsWriter(v.Out) {
			_, _ = io.WriteString(v.Out, message)
		}
	}()
}

// WaitSaid blocks until all messages are written, SayWithin at most.
func (v *Voice) WaitSaid() {
	if v.said == nil {
		return
	}
	select {
	case <-v.said:
	case <-time.After(SayWithin):
	}
}
