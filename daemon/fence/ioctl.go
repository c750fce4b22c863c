package fence

import (
	"cmp"
	"fmt"
	"runtime"
	"unsafe"
)

// The structures and calls of linux/pr.h. Those that read came with Linux 7.0 and are not used: the
// device's own commands do the same.
type (
	prReservation struct { // struct pr_reservation
		key         uint64
		kind, flags uint32
	}
	prKeys struct { // struct pr_registration, with flags and padding; struct pr_preempt, with type and flags
		oldKey, newKey uint64
		detail, _      uint32
	}
)

var (
	_ [16]byte = [unsafe.Sizeof(prReservation{})]byte{}
	_ [24]byte = [unsafe.Sizeof(prKeys{})]byte{}
)

const (
	iocWrite = 1 << 30
	iocRead  = 2 << 30

	ioctlRegister     = iocWrite | 24<<16 | 'p'<<8 | 200
	ioctlReserve      = iocWrite | 16<<16 | 'p'<<8 | 201
	ioctlPreempt      = iocWrite | 24<<16 | 'p'<<8 | 203
	ioctlPreemptAbort = iocWrite | 24<<16 | 'p'<<8 | 204

	prIgnoreKey       = 1
	prWriteExclAllReg = 5

	// Positive results of the calls, by linux/pr.h. Kernels before 6.4 return the SCSI result or
	// NVMe status.
	prIOError  = 0x2
	prConflict = 0x18
)

// calls has the kernel's call for each action.
var calls = map[action]struct {
	name    string
	request uintptr
	detail  uint32
}{
	register:       {"IOC_PR_REGISTER", ioctlRegister, 0},
	reserve:        {"IOC_PR_RESERVE", ioctlReserve, prWriteExclAllReg},
	preempt:        {"IOC_PR_PREEMPT", ioctlPreempt, prWriteExclAllReg},
	preemptAbort:   {"IOC_PR_PREEMPT_ABORT", ioctlPreemptAbort, prWriteExclAllReg},
	registerIgnore: {"IOC_PR_REGISTER", ioctlRegister, prIgnoreKey},
}

// kernel is the transport of Linux's own calls, which reach SCSI and NVMe disks and every path of
// a multipath device. It also sends NVMe's own commands, where the kernel has no call.
type kernel struct {
	fd        int
	namespace uint32 // of an NVMe device; 0: another device
}

// String implements transport.
func (k kernel) String() string { return "IOC_PR" }

// change implements transport.
func (k kernel) change(a action, own, other uint64) error {
	if a == register && other == 0 && k.namespace != 0 {
		return k.unregister(own) // Linux would replace the key by 0
	}
	call := calls[a]
	arg := unsafe.Pointer(&prKeys{oldKey: own, newKey: other, detail: call.detail})
	if a == reserve {
		arg = unsafe.Pointer(&prReservation{key: own, kind: call.detail})
	}
	n, err := ioctl(k.fd, call.request, arg)
	return k.outcome(call.name, n, err)
}

// outcome classifies the result of a call: an errno, or the device's answer.
func (k kernel) outcome(call string, n int, err error) error {
	switch {
	case err != nil:
		return errnoError(call, err)
	case n == 0:
		return nil
	case n == prConflict, k.namespace != 0 && n&nvmeStatus == nvmeConflict:
		return fmt.Errorf("%w: %s", errConflict, call)
	case k.namespace != 0 && n != prIOError && (n&nvmeStatus == nvmeInvalidOpcode || n&nvmeStatus == nvmeInvalidField):
		return fmt.Errorf("%w: %s: NVMe status %#x", errRefused, call, n)
	case n == prIOError, n&0xff == statusCheckCondition, n >= 1<<16:
		// A unit attention or another condition; or there is temporarily no path to the device.
		return fmt.Errorf("%w: %s: device status %#x", errAgain, call, n)
	}
	return fmt.Errorf("%s: device status %#x", call, n)
}

type nvmeCommand struct { // struct nvme_passthru_cmd
	opcode, flags uint8
	_             uint16
	namespace     uint32
	cdw2, cdw3    uint32
	metadata      uint64
	data          uint64 // address
	metadataLen   uint32
	dataLen       uint32
	cdw10, cdw11  uint32
	cdw12, cdw13  uint32
	cdw14, cdw15  uint32
	timeout       uint32 // milliseconds
	result        uint32
}

var _ [72]byte = [unsafe.Sizeof(nvmeCommand{})]byte{}

const (
	ioctlNVMeID      = 'N'<<8 | 0x40
	ioctlNVMeCommand = iocWrite | iocRead | 72<<16 | 'N'<<8 | 0x43

	nvmeRegister = 0x0d
	nvmeReport   = 0x0e

	nvmeStatus         = 0x7ff
	nvmeInvalidOpcode  = 0x01
	nvmeInvalidField   = 0x02
	nvmeHostIDInconsis = 0x18
	nvmeConflict       = 0x83
)

// namespaceOf returns the namespace id of an NVMe device, 0 for others.
func namespaceOf(fd int) uint32 {
	n, _ := ioctl(fd, ioctlNVMeID, nil) // 0 with an error
	return uint32(max(n, 0))
}

// unregister removes the own registration, whose key must be key.
func (k kernel) unregister(key uint64) error {
	const unregister = 1
	data := make([]byte, 16)
	le.PutUint64(data, key)
	return k.command(nvmeCommand{opcode: nvmeRegister, cdw10: unregister}, data)
}

// state reads the state of an NVMe device.
func (k kernel) state() (State, error) {
	if k.namespace == 0 {
		return State{}, fmt.Errorf("%w: not an NVMe device", errRefused)
	}
	for room := 8 << 10; ; {
		extended := uint32(1) // host identifiers of 16 bytes, a device's default
		buf := make([]byte, room)
		report := nvmeCommand{opcode: nvmeReport, cdw10: uint32(room/4 - 1), cdw11: extended}
		err := k.command(report, buf)
		if err == errHostID {
			extended, report.cdw11 = 0, 0
			err = k.command(report, buf)
		}
		if err != nil {
			return State{}, err
		}
		state, all := parseReport(buf, extended == 1)
		if all {
			return state, nil
		}
		const most = 1 << 20
		if room == most {
			return State{}, fmt.Errorf("NVMe reservation report of more than %d bytes", most)
		}
		room = most
	}
}

var errHostID = fmt.Errorf("%w: NVMe host identifier inconsistent format", errRefused)

func (k kernel) command(c nvmeCommand, data []byte) error {
	c.namespace, c.timeout = k.namespace, sgTimeout
	c.data, c.dataLen = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))
	n, err := ioctl(k.fd, ioctlNVMeCommand, unsafe.Pointer(&c))
	runtime.KeepAlive(data)
	if err != nil {
		return errnoError("NVME_IOCTL_IO_CMD", err)
	}
	switch n & nvmeStatus {
	case 0:
		return nil
	case nvmeConflict:
		return errConflict
	case nvmeHostIDInconsis:
		return errHostID
	case nvmeInvalidOpcode, nvmeInvalidField:
		return fmt.Errorf("%w: NVMe status %#x", errRefused, n)
	}
	return fmt.Errorf("NVMe status %#x", n)
}

// parseReport reads a Reservation Status data structure (little-endian): the type at byte 4, the
// number of registered controllers at 5..6; then, from byte 24, or 64 if extended, 24 or 64 bytes
// each, with its key at 16, or 8 if extended. all is false if the buffer was too small.
func parseReport(buf []byte, extended bool) (state State, all bool) {
	head, size, key := 24, 24, 16
	if extended {
		head, size, key = 64, 64, 8
	}
	if buf[4] != 0 {
		state.Held, state.Type = true, cmp.Or(linuxTypes[buf[4]], 0xff)
	}
	for i := range int(le.Uint16(buf[5:])) {
		at := head + i*size
		if at+size > len(buf) {
			return state, false
		}
		state.Keys = append(state.Keys, le.Uint64(buf[at+key:]))
	}
	return state, true
}
