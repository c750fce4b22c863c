package main

// lock is a lock that the clients contend for.
type lock struct {
	name    string
	permits int
	weight  int  // how often it is chosen, relative to others
	shared  int  // percentage of shared sections
	change  bool // holders change their mode
	value   bool // holders set a value
	brief   bool // clients remove it, and others create it again
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

// maxHosts is the number of hosts in the lockspace.
const maxHosts = 16

func lockNamed(name string) lock { return locks[blockOf(name)/blockSize] }
