package locks

import (
	"time"
)

// lasting formats the cluster with another lease.
func (c *cluster) lasting(lease time.Duration) {
	c.SB.Lease = lease
	c.Format()
}
