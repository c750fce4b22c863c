//go:build race

package rawio

import "syscall"

// The race detector knows from package syscall, and not from raw system calls, that what happened
// before a write comes before what happens after the read of it.

func read(fd uintptr, p []byte) (int, error) { return again(syscall.Read, fd, p) }

func write(fd uintptr, p []byte) (int, error) { return again(syscall.Write, fd, p) }

func again(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	n, err := call(int(fd), p)
	for err == syscall.EINTR {
		n, err = call(int(fd), p)
	}
	return max(n, 0), err
}
