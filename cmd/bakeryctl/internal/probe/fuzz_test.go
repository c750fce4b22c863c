package probe

import "testing"

// FuzzQueueing parses arbitrary output of dmsetup.
func FuzzQueueing(f *testing.F) {
	f.Add("0 2097152 multipath 1 queue_if_no_path 0 1 1 service-time 0 1 2 8:16 1 1\n")
	f.Add("0 1 multipath 99999999999999999999 queue_if_no_path")
	f.Add("0 1 multipath -1")
	f.Add("0 1 linear 8:16 0\n0 1 multipath 0\n")
	f.Fuzz(func(t *testing.T, table string) {
		if queues, known := parseQueueing(table); queues && !known {
			t.Fatalf("%q queues, and nothing is known of it", table)
		}
	})
}
