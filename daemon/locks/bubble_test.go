package locks

import (
	"testing"
	"testing/synctest"
)

// inBubble runs a test in virtual time, which passes only while all goroutines of the test are
// blocked, and then without delay. A goroutine that is blocked by a socket, a FIFO or a process
// stops it.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// inCluster runs a test in virtual time with a cluster of up to eight hosts and four locks.
func inCluster(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) { f(t, newCluster(t, 8, 4)) })
}

// onTwoHosts runs a test in virtual time with hosts 1 and 2 of a cluster.
func onTwoHosts(t *testing.T, f func(t *testing.T, c *cluster, a, b *testHost)) {
	t.Helper()
	inCluster(t, func(t *testing.T, c *cluster) { f(t, c, c.host(1), c.host(2)) })
}

// runInBubble runs a subtest in virtual time.
func runInBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

// runInCluster runs a subtest with a cluster of its own.
func runInCluster(t *testing.T, name string, f func(t *testing.T, c *cluster)) {
	t.Run(name, func(t *testing.T) { inCluster(t, f) })
}
