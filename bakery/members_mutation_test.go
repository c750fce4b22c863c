package bakery

import "testing"

// onThree returns the scenario with three members, where a write may reach fewer than a majority.
func onThree(sc scenario, change func(sc *scenario)) scenario {
	sc.minority = 1
	return with(sc, change)
}

// unnoted returns a mutation by which the writes of a step are not noted.
func unnoted(of step) *mutation {
	return &mutation{unnoted: func(s step) bool { return s == of }}
}

var membersMutations = []mutated{
	{"NOTE-FIRST: a number", "EXCLUSION", onThree(restarting, func(*scenario) {}), unnoted(stepNumber)},
	{"NOTE-FIRST: a withdrawal", "EXCLUSION", onThree(restarting, func(sc *scenario) { sc.cancels = 1 }), unnoted(stepWithdraw)},
	{"NOTE-FIRST: a release", "EXCLUSION", onThree(restarting, func(sc *scenario) { sc.resumes = 2 }), unnoted(stepRelease)},
	{"NOTE-FIRST: what is read is written again", "EXCLUSION",
		onThree(restarting, func(sc *scenario) { sc.cancels = 1 }), &mutation{writesBack: true}},
	{"VERSIONS: what an earlier incarnation left outranks a new one's write", "EXCLUSION",
		onThree(twoByTwo, func(sc *scenario) { sc.crashes, sc.rejoin = 1, true }), &mutation{unordered: true}},
	{"IDENTITY: members forget what they have acknowledged", "EXCLUSION", onThree(twoByTwo, func(*scenario) {}), &mutation{forgets: true}},
}

// TestMembersMutations leaves out each rule of several members, in turn.
func TestMembersMutations(t *testing.T) { findAll(t, membersMutations) }
