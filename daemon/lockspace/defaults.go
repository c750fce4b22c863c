package lockspace

import "time"

// The size and the lease of a lockspace that is formatted without options.
const (
	DefaultHosts = 64
	DefaultLocks = 256
	DefaultLease = 30 * time.Second
)
