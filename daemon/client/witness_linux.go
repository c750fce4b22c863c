package client

import "golang.org/x/sys/unix"

// firstInherited is above the descriptors that shell scripts choose: a script that opens 3 for
// itself must not close the descriptor that holds the lock.
const firstInherited = 10

// Close closes the descriptor in this process.
func (d Descriptor) Close() error { return unix.Close(int(d)) }

// Inheritable returns a duplicate of fd that commands inherit. Its number is at least 10.
func Inheritable(fd int) (Descriptor, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, firstInherited)
	return Descriptor(dup), err
}

func openWitness(path string) (Descriptor, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fd) }() // the command inherits its duplicate
	return Inheritable(fd)
}
