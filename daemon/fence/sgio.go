package fence

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlSGIO and the constants below are from Linux's scsi/sg.h.
const (
	ioctlSGIO = 0x2285

	sgToDevice   = -2
	sgFromDevice = -3

	// sgTimeout is the time after which the kernel aborts a command, in milliseconds: its default
	// for disks.
	sgTimeout = 30_000

	senseLen = 96
)

// sgHeader is sg_io_hdr.
type sgHeader struct {
	interfaceID, direction   int32
	cmdLen, senseMax         uint8
	iovecCount               uint16
	dataLen                  uint32
	data, cmd, sense         unsafe.Pointer
	timeout, flags           uint32
	packID                   int32
	user                     unsafe.Pointer
	status, maskedStatus     uint8
	msgStatus, senseWritten  uint8
	hostStatus, driverStatus uint16
	residual                 int32
	duration, info           uint32
}

// 64 bytes with pointers of 4 bytes; 88 with pointers of 8, including two gaps.
var _ [64 + 6*(unsafe.Sizeof(uintptr(0))-4)]byte = [unsafe.Sizeof(sgHeader{})]byte{}

// sgDevice sends SCSI commands by SG_IO.
type sgDevice struct {
	fd int
}

// send implements scsiDevice.
func (d sgDevice) send(cdb, data []byte, out bool) (scsiResult, error) {
	senseBuf := make([]byte, senseLen)
	h := &sgHeader{
		interfaceID: 'S', direction: sgFromDevice, timeout: sgTimeout,
		cmdLen: uint8(len(cdb)), cmd: unsafe.Pointer(&cdb[0]),
		dataLen: uint32(len(data)), data: unsafe.Pointer(&data[0]),
		senseMax: senseLen, sense: unsafe.Pointer(&senseBuf[0]),
	}
	if out {
		h.direction = sgToDevice
	}
	_, err := ioctl(d.fd, ioctlSGIO, unsafe.Pointer(h))
	runtime.KeepAlive(h)
	if err != nil {
		return scsiResult{}, errnoError("SG_IO", err)
	}
	// A driver status only says that there is sense data, and the kernel adds a host status to
	// some device statuses.
	if h.hostStatus != 0 && h.status == statusGood {
		return scsiResult{}, fmt.Errorf("%w: host status %02x", errAgain, h.hostStatus)
	}
	moved := len(data) - int(h.residual)
	return scsiResult{
		status: h.status,
		sense:  senseBuf[:min(int(h.senseWritten), senseLen)],
		moved:  max(0, min(moved, len(data))),
	}, nil
}

// ioctl returns the result of the system call. The kernel's reservation calls return a positive
// number for a device's error.
func ioctl(fd int, request uintptr, arg unsafe.Pointer) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// errnoError classifies the kernel's error for a command that it could not send.
func errnoError(call string, err error) error {
	switch err {
	case unix.EOPNOTSUPP, unix.ENOTTY, unix.EINVAL, unix.ENOSYS, unix.EREMOTEIO:
		return fmt.Errorf("%w: %s: %w", errRefused, call, err)
	case unix.EBADE:
		return fmt.Errorf("%w: %s: %w", errConflict, call, err)
	case unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.EIO, unix.ENOLINK:
		return fmt.Errorf("%w: %s: %w", errAgain, call, err)
	case unix.EPERM, unix.EACCES:
		return fmt.Errorf("%s: %w (it requires CAP_SYS_RAWIO and CAP_SYS_ADMIN)", call, err)
	}
	return fmt.Errorf("%s: %w", call, err)
}
