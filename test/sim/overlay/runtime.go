package main

// runtimePatches remove what makes two runs of one simulation differ. The order of select, and of
// timers that fire together, comes from a sequence that starts again with every bubble of
// testing/synctest. Maps have one order, which does not use that sequence, because some are filled
// once per process. Hashes have a fixed key. No goroutine is preempted, whether it computes or is
// in a system call.
var runtimePatches = []patch{
	// Seeds of maps and caches come from this, some of them once per process.
	{"runtime/rand.go", `func rand() uint64 {
`, `func rand() uint64 {
	if getg().bubble != nil {
		return 1
	}
`},
	{"math/rand/v2/rand.go", `//go:linkname runtime_rand runtime.rand
`, `//go:linkname runtime_rand runtime.chance
`},
	{"os/tempfile.go", `//go:linkname runtime_rand runtime.rand
`, `//go:linkname runtime_rand runtime.chance
`},
	{"runtime/rand.go", `func rand32() uint32 {
`, `func rand32() uint32 {
	if getg().bubble != nil {
		return 1
	}
`},
	{"runtime/rand.go", `func maps_rand() uint64 {
`, `func maps_rand() uint64 {
	if getg().bubble != nil {
		return 1
	}
`},
	{"runtime/select.go", `		j := cheaprandn(uint32(norder + 1))
`, `		j := cheaprandn(uint32(norder + 1))
		if getg().bubble != nil {
			j = uint32(simulatedRand() % uint64(norder+1))
		}
`},
	{"runtime/time.go", `			t.rand = cheaprand()
`, `			t.rand = uint32(simulatedRand())
`},
	{"runtime/rand.go", `	globalRand.state.Init(*seed)
`, `	for i := range seed {
		seed[i] = byte(i + 1)
	}
	globalRand.state.Init(*seed)
`},
	{"runtime/rand.go", `var readRandomFailed bool
`, `var readRandomFailed bool

var simulated uint64

// chance is rand for programs.
//
//go:linkname chance
func chance() uint64 {
	if getg().bubble != nil {
		return simulatedRand()
	}
	return rand()
}

// simulatedRand is SplitMix64.
//
//go:nosplit
func simulatedRand() uint64 {
	simulated += 0x9e3779b97f4a7c15
	z := simulated
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
`},
	// A mutex uses this to be handed over in order after a long wait: real time, which differs.
	{"runtime/sema.go", `func internal_sync_nanotime() int64 {
`, `func internal_sync_nanotime() int64 {
	if bubble := getg().bubble; bubble != nil {
		return bubble.now
	}
`},
	{"runtime/synctest.go", `	bubble.now = synctestBaseTime
`, `	bubble.now = synctestBaseTime
	simulated = 0
`},
	{"runtime/proc.go", `func retake(now int64) uint32 {
`, `func retake(now int64) uint32 {
	if simulated != 0 {
		return 0
	}
`},
}
