//go:build !race

package rawio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func read(fd uintptr, p []byte) (int, error) { return raw(unix.SYS_READ, fd, p) }

func write(fd uintptr, p []byte) (int, error) { return raw(unix.SYS_WRITE, fd, p) }

func raw(call, fd uintptr, p []byte) (int, error) {
	n, _, err := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	for err == unix.EINTR {
		n, _, err = unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	}
	if err != 0 {
		return 0, err
	}
	return int(n), nil
}
