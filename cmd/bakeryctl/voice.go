package main

import (
	"fmt"
	"io"
	"time"
)

// sayWithin bounds the wait for somebody who takes in no more of what is said.
const sayWithin = time.Second

// voice writes to standard error in the background: what is under a lock has to be stopped whether or not anybody
// reads what we have to say.
type voice struct {
	out  io.Writer
	said chan struct{} // closed when the last message was written; nil: there was none
}

func (v *voice) say(format string, args ...any) {
	message := fmt.Sprintf("bakeryctl: "+format+"\n", args...)
	before, written := v.said, make(chan struct{})
	v.said = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
		if !stopsWriter(v.out) {
			_, _ = io.WriteString(v.out, message)
		}
	}()
}

func (v *voice) waitSaid() {
	if v.said == nil {
		return
	}
	select {
	case <-v.said:
	case <-time.After(sayWithin):
	}
}
