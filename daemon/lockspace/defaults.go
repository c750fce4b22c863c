package lockspace

import "time"

// Size and lease of a lockspace that is formatted without options.
const (
	DefaultHosts = 64
	DefaultLocks = 256
	DefaultLease = 30 * time.Second
)
