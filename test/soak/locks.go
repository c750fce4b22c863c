package main

// lock is one that the clients contend for.
type lock struct {
	name    string
	permits int
	weight  int  // how often it is chosen
	shared  int  // of a hundred sections, how many share it
	change  bool // its holders change their mode
	value   bool // it has a value
	brief   bool // it is removed now and then, and made anew by who uses it next
}

var locks = []lock{
	{name: "hot", permits: 1, weight: 4},
	{name: "mixed", permits: 1, weight: 3, shared: 60, change: true},
	{name: "semaphore", permits: 2, weight: 3, shared: 10},
	{name: "value", permits: 1, weight: 2, shared: 30, value: true},
	{name: "brief-1", permits: 1, weight: 1, brief: true},
	{name: "brief-2", permits: 1, weight: 1, shared: 20, brief: true},
	{name: "seldom", permits: 1, weight: 1},
}

// maxHosts is the number of hosts that the image has room for.
const maxHosts = 16

func lockNamed(name string) lock { return locks[blockOf(name)/blockSize] }
