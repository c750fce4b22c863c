package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/term"
)

// Patience is what a command does while bakeryd or a device does not answer: it prints a line to Out after
// Notice, and gives up after Limit. The zero value waits silently.
type Patience struct {
	Out    io.Writer
	Notice time.Duration
	Limit  time.Duration // 0: none. A device has twice that; bakeryd has none if Notice is 0
}

// DefaultPatience returns the Patience of the programs. A bakeryd under load may pause for seconds.
func DefaultPatience() Patience {
	return Patience{Out: os.Stderr, Notice: 3 * time.Second, Limit: 15 * time.Second}
}

type patienceKey struct{}

// With returns a context that carries p to the calls of a command.
func (p Patience) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, p)
}

// PatienceOf returns what With has put into ctx, or the zero value.
func PatienceOf(ctx context.Context) Patience {
	p, _ := ctx.Value(patienceKey{}).(Patience)
	return p
}

// Say prints a line, unless that could block or stop this process.
func (p Patience) Say(line string) {
	if term.Writable(p.Out) {
		fmt.Fprintf(p.Out, "bakeryctl: %s\n", line)
	}
}
