//go:build !amd64 && !arm64

package signals

import "syscall"

// Other architectures have no assembler code of ours: a signal of the terminal is forwarded as well.

func noteSources(State, ...syscall.Signal) {}

// SentToUs reports whether a process may have sent a signal that os/signal has delivered: always.
func SentToUs(syscall.Signal) bool { return true }
