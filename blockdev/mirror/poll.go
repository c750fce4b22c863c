package mirror

// poll counts the copies of one read.
type poll struct {
	members  int
	records  []vote
	open     int // number of records without a majority of valid copies
	answered Positions
	errs     [maxMembers]error // of the members that failed, also if they are read again
	failed   Positions         // without those that are read again
}

// vote is the count of one record.
type vote struct {
	valid int     // number of valid copies
	best  Version // greatest of them
}

// pollState is what a read does next.
type pollState uint8

const (
	pollWaits      pollState = iota // for more members
	pollSettled                     // every record has its majority
	pollExhausted                   // no member is left, and a record has no majority
	pollImpossible                  // a majority of the members cannot answer
)

func newPoll(members, records int) *poll {
	return &poll{members: members, records: make([]vote, records), open: records}
}

func (q *poll) majority() int { return q.members/2 + 1 }

// lacks reports whether a record has no majority of valid copies.
func (q *poll) lacks(record int) bool { return q.records[record].valid < q.majority() }

// count counts a valid copy: VALID. It reports whether this is the greatest version so far.
func (q *poll) count(record int, v Version) bool {
	r := &q.records[record]
	r.valid++
	if r.valid == q.majority() {
		q.open--
	}
	if r.valid > 1 && !r.best.Less(v) {
		return false
	}
	r.best = v
	return true
}

// answer notes that a member answered, and with which error.
func (q *poll) answer(i int, err error) {
	q.errs[i] = err
	if err == nil {
		q.answered |= At(i)
		return
	}
	q.failed |= At(i)
}

func (q *poll) state() pollState {
	switch {
	case q.open == 0:
		return pollSettled
	case q.failed.Count() > q.members-q.majority():
		return pollImpossible
	case (q.answered | q.failed).Count() == q.members:
		return pollExhausted
	}
	return pollWaits
}

// has reports whether all members of a set answered or failed.
func (q *poll) has(need Positions) bool { return need&^(q.answered|q.failed) == 0 }

// enough reports whether a majority answered, so that only a record or a member is missing.
func (q *poll) enough() bool { return q.answered.Count() >= q.majority() }
