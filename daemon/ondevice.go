package daemon

import (
	"errors"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// On returns a Config whose lockspace is on the device that open returns instead of Device, such as
// a disk in memory. Every term of membership opens and closes it.
func (c Config) On(open func() (blockdev.Device, error)) Config {
	c.open = func(string, bool) (blockdev.Device, layout.Superblock, int, error) {
		dev, err := open()
		if err != nil {
			return nil, layout.Superblock{}, 0, err
		}
		sb, copyUsed, err := lockspace.FindLockspace(dev)
		if err != nil {
			return nil, layout.Superblock{}, 0, errors.Join(err, dev.Close())
		}
		return dev, sb, copyUsed, nil
	}
	return c
}
