//go:build race

package daemon

// slowness is for the race detector: it makes everything take five to ten times as long, and beside others on two
// processors a lease of 2 s is over before bakeryd is back that was killed within it.
const slowness = 3
