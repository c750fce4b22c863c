//go:build !race

package daemon

// slowness is how much longer the leases of these tests last than they would on a machine that has time for them.
const slowness = 1
