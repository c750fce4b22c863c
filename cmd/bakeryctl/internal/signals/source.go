//go:build amd64 || arm64

package signals

import (
	"sync/atomic"
	"syscall"
)

// entry is where the kernel begins to execute bakeryctl if it is linked with -E, as cmd/build
// does. It fills started, and continues with the entry point of the Go runtime,
// which replaces the dispositions of most signals before any Go code runs.
//
//lint:ignore U1000 the linker uses it
func entry()

// The kernel sends what the INT and QUIT characters of a terminal stand for to the whole foreground
// process group, and so to the command. A signal that a process has sent to bakeryctl alone has to
// be forwarded. os/signal does not report which of the two a signal is. So a handler of ours notes
// it, and continues with the handler of the Go runtime.

// source is that handler.
//
//lint:ignore U1000 source_*.s define and use it
func source()

var (
	sourceHandler uintptr // address of source
	//lint:ignore U1000 source jumps there
	runtimeHandler uintptr          // address of the Go runtime's handler, which is the same for all signals
	fromProcess    [Last + 1]uint32 // 1: a process has sent that signal; set by source
	noted          Set              // signals whose handler is source
)

// noteSources begins to note the source of the signals, which the Go runtime handles already.
func noteSources(inherited State, signals ...syscall.Signal) {
	for _, n := range signals {
		if inherited.ignored.has(n) {
			continue
		}
		var action sigaction
		if err := action.get(n); err != nil || action.handler <= sigIgnore || noted.has(n) {
			continue // all are forwarded then
		}
		runtimeHandler, action.handler = action.handler, sourceHandler
		if action.set(n) == nil {
			noted |= 1 << (n - 1)
		}
	}
}

// SentToUs reports whether a process sent a signal that os/signal has delivered. Signals of one
// number that come together are one, as everywhere.
func SentToUs(n syscall.Signal) bool {
	return !noted.has(n) || atomic.SwapUint32(&fromProcess[n], 0) == 1
}
