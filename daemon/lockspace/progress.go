package lockspace

import "time"

// Counter receives the progress of a long step: done of total, in bytes if bytes is set, else in a
// unit of the step. The total does not change within a step. A Counter is called often, by one
// goroutine at a time, and must not block. A nil Counter is valid.
type Counter func(step string, done, total int64, bytes bool)

// Report calls the counter, unless it is nil.
func (c Counter) Report(step string, done, total int64, bytes bool) {
	if c != nil {
		c(step, min(done, total), total, bytes)
	}
}

// PollInterval returns the time between two reads of a host table by a caller that waits for a
// change of it.
func PollInterval(lease, most time.Duration) time.Duration {
	return min(max(lease/60, 20*time.Millisecond), most)
}
