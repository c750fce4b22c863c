package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// TestVerdictOnAZeroedRecordStays: a blank record does not show another incarnation.
func TestVerdictOnAZeroedRecordStays(t *testing.T) {
	r, rec, since := liveUnder(t, layout.PolicyLease)
	*rec = Record{}
	r.until(since + times.Blind())
	require.False(t, r.m.Host(3).Gone, "not by itself")
	require.NoError(t, r.evict(3, 7, false))
	r.until(r.now)
	require.True(t, r.m.Host(3).Gone)
	require.Len(t, r.table[0].Verdicts, 1)
	*rec = Record{} // the contents of a zeroed sector
	for end := r.now + 2*times.Renew(); r.now < end; {
		r.until(r.now + times.Renew()/2)
		*rec = Record{}
	}
	require.Len(t, r.table[0].Verdicts, 1, "the verdict stays until the record shows another incarnation or left")
}

// TestVerdictOnAZeroedRecordIsHeardByAll: host 2 reads the table a moment before host 1's verdict
// is durable, and next a moment after host 1's next renewal.
func TestVerdictOnAZeroedRecordIsHeardByAll(t *testing.T) {
	r, rec, since := liveUnder(t, layout.PolicyLease)
	q := newRig(t, Config{ID: 2})
	q.start()
	q.read(0)
	q.join()
	*q.set(3, layout.StateLive, 3, 7, 1) = *rec
	*q.set(1, layout.StateLive, 1, 101, 1) = r.table[0]
	q.look(time.Second)
	require.False(t, q.m.Host(3).Gone)
	*rec, q.table[2] = Record{}, Record{}
	r.until(since + 2*times.Alive())
	q.until(r.now)
	require.NoError(t, r.evict(3, 7, false))
	r.until(r.now)
	require.True(t, r.m.Host(3).Gone)
	for end := r.now + 4*times.Lease; r.now < end; {
		*rec = Record{}
		r.until(r.now + times.Renew() + time.Second) // it renews
		q.table[0], q.table[2] = r.table[0], Record{}
		q.until(r.now) // reads only then
	}
	require.True(t, q.m.Host(3).Gone, "host 2 waits for ever for what host 3 held")
}
