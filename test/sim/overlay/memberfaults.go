package main

// memberFaults are faults of a lockspace on several disks.
var memberFaults = []fault{
	{"generation", "a claim keeps the generation of the host id (VERSIONS)", "IDENTITY|EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY|SINGLE|WORD|PROGRESS", false, []patch{
		{"daemon/lease/members/members.go", `	return generation + 1, sequence + 1, nil
`, `	return max(generation, 1), sequence + 1, nil
`},
	}},
	{"identity", "a disk is used without a check (IDENTITY)", "IDENTITY", false, []patch{
		{"blockdev/mirror/member.go", `	return s.opts.Check(m.position, dev)
`, `	return nil
`},
	}},
	{"own", "a disk that lost what its host wrote is used (OWN)", "IDENTITY", false, []patch{
		{"daemon/lockspace/disks.go", `err != nil || !found.Less(acked) {`, `err != nil || !acked.Less(acked) {`},
	}},
	{"hung", "an answer that ends a silence counts without a check (HUNG)", "IDENTITY", false, []patch{
		{"blockdev/mirror/member.go", `	if s.opts.Hung != 0 && silence > s.opts.Hung {
`, `	if s.opts.Hung < 0 {
`},
	}},
	{"locked", "a disk is used while a write of an earlier process is in flight there (FIFO)", "WRITER", false, []patch{
		{"daemon/memberdisks/memberdisks.go", `	if host == 0 {
		return nil
	}
	if err := at.Lock`, `	if host >= 0 {
		return nil
	}
	if err := at.Lock`},
	}},
	{"quorum", "a read takes the first valid copy (VALID)", "PROGRESS|EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY|WORD|SINGLE", false, []patch{
		{"blockdev/mirror/poll.go", `func (q *poll) majority() int { return q.members/2 + 1 }
`, `func (q *poll) majority() int { return 1 }
`},
	}},
	{"acknowledged", "a write is done when one disk acknowledged it (MAJORITY)", "PROGRESS|EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY|WORD|SINGLE|DEADLINE", false, []patch{
		{"blockdev/mirror/register.go", `		majority := len(r.copies)/2 + 1
		if`, `		majority := 1
		if`},
		{"blockdev/mirror/write.go", `w.acked.Count() <= len(s.members)/2 {`, `w.acked.Count() == 0 {`},
	}},
}
