//go:build !amd64 && !arm64

package signals

import "syscall"

// Other architectures have no handler in assembler: a signal from the terminal is forwarded, too.

func noteSources(State, ...syscall.Signal) {}

const catches = false

func caught(syscall.Signal) bool { return false }

// SentToUs reports whether a process may have sent a signal that os/signal has delivered. It always
// returns true.
func SentToUs(syscall.Signal) bool { return true }
