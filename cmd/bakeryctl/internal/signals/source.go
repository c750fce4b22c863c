//go:build amd64 || arm64

package signals

import (
	"sync/atomic"
	"syscall"
)

// entry is the entry point of bakeryctl if it is linked with -E, as cmd/build does. It fills
// started and jumps to the entry point of the Go runtime. The runtime replaces the dispositions of
// most signals before any Go code runs.
//
//lint:ignore U1000 the linker uses it
func entry()

// The kernel sends the signals of a terminal's INT and QUIT characters to the whole foreground
// process group, the command included. A signal that a process sent to bakeryctl alone must be
// forwarded. os/signal does not tell the two apart. Therefore source records the sender and jumps
// to the handler of the Go runtime.

// source is the signal handler that records the sender.
//
//lint:ignore U1000 source_*.s define and use it
func source()

var (
	sourceHandler uintptr // address of source
	//lint:ignore U1000 source jumps there
	runtimeHandler uintptr          // address of the Go runtime's handler, the same for all signals
	fromProcess    [Last + 1]uint32 // 1: a process sent that signal; set by source
	noted          Set              // signals whose handler is source
)

// noteSources installs source for signals that the Go runtime handles already.
func noteSources(inherited State, signals ...syscall.Signal) {
	for _, n := range signals {
		if inherited.ignored.has(n) {
			continue
		}
		var action sigaction
		if err := rtSigaction(n, nil, &action); err != nil || action.handler <= sigIgnore || noted.has(n) {
			continue // then SentToUs is always true
		}
		runtimeHandler, action.handler = action.handler, sourceHandler
		if rtSigaction(n, &action, nil) == nil {
			noted |= 1 << (n - 1)
		}
	}
}

// catches says that CatchMore records signals.
const catches = true

// caught reports whether source has recorded a signal for which SentToUs was not called since.
func caught(n syscall.Signal) bool { return noted.has(n) && atomic.LoadUint32(&fromProcess[n]) == 1 }

// SentToUs reports whether a process sent a signal that os/signal has delivered. Pending signals of
// one number count as one.
func SentToUs(n syscall.Signal) bool {
	return !noted.has(n) || atomic.SwapUint32(&fromProcess[n], 0) == 1
}
