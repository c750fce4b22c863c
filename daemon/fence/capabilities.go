package fence

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Byte ranges of the answer to PERSISTENT RESERVE IN, REPORT CAPABILITIES, by SPC-4:
//
//	0..1  length, 8
//	2     bit 0: registrations can be kept through a loss of power (PTPL_C)
//	3     bit 7: the types are reported; bit 0: registrations are kept so now (PTPL_A)
//	4     bit 7: Write Exclusive - All Registrants
const (
	inReportCapabilities = 0x02
	capabilitiesLen      = 8
)

// Capabilities describes the persistent reservations of a device.
type Capabilities struct {
	Reported       bool `json:"reported"`        // the device reports the fields below; older targets do not
	AllRegistrants bool `json:"all_registrants"` // it has the type of reservation that fencing needs
	CanPersist     bool `json:"can_persist"`     // it can keep registrations through a loss of power
	Persists       bool `json:"persists"`        // and does so now
	Keys           int  `json:"keys"`            // number of registered keys
}

// ReadCapabilities reads the capabilities of the device at path. It opens the device for reading
// only and changes nothing. It returns ErrUnsupported if the device has no persistent
// reservations, or, like NVMe, does not report them this way. Otherwise it wraps an errno or the
// device's error.
func ReadCapabilities(ctx context.Context, path string) (Capabilities, error) {
	var c Capabilities
	err := within(ctx, func() error {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFBLK {
			return fmt.Errorf("%w: it is no block device", ErrUnsupported)
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(fd)
		c, err = scsi{dev: sgDevice{fd}}.capabilities(ctx)
		return err
	})
	if err != nil {
		return Capabilities{}, fmt.Errorf("read reservation capabilities of %s: %w", path, err)
	}
	return c, nil
}

// capabilities reads the keys first, which every target with reservations supports.
func (s scsi) capabilities(ctx context.Context) (c Capabilities, err error) {
	keys, err := whileAgain(ctx, func() ([]byte, error) { return s.in(inReadKeys, 8<<10) })
	if errors.Is(err, errRefused) {
		return c, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return c, err
	}
	c.Keys = len(keys) / 8
	said, err := whileAgain(ctx, func() ([]byte, error) { return s.receive(inReportCapabilities, capabilitiesLen) })
	switch {
	case errors.Is(err, errRefused):
		return c, nil
	case err != nil:
		return c, err
	case len(said) < capabilitiesLen:
		return c, fmt.Errorf("report capabilities: %d bytes, want %d", len(said), capabilitiesLen)
	}
	c.Reported = said[3]&0x80 != 0
	c.CanPersist, c.Persists = said[2]&1 != 0, said[3]&1 != 0
	c.AllRegistrants = c.Reported && said[4]&0x80 != 0
	return c, nil
}
