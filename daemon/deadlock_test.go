package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestReport_CycleBetweenHosts_IsADeadlock(t *testing.T) {
	lock := func(name string, holder, holderPID, waiter, under int) LockReport {
		return LockReport{Name: name, Permits: 1,
			Holders: []HolderReport{{Host: holder, PID: holderPID}},
			Queue:   []QueueReport{{Host: waiter, Phase: layout.Waiting, Under: under}}}
	}
	for _, test := range []struct {
		name  string
		locks []LockReport
		want  []string
	}{
		{"two hosts, opposite order", []LockReport{lock("a", 1, 10, 2, 20), lock("b", 2, 20, 1, 10)}, []string{
			`deadlock: process 10 of host 1 holds "a" and waits for "b"; process 20 of host 2 holds "b" and waits for "a": end a waiter`,
			`deadlock: process 20 of host 2 holds "b" and waits for "a"; process 10 of host 1 holds "a" and waits for "b": end a waiter`}},
		{"the waits are of other processes", []LockReport{lock("a", 1, 10, 2, 20), lock("b", 2, 21, 1, 10)}, []string{"", ""}},
		{"the same pid on another host", []LockReport{lock("a", 1, 10, 2, 10), lock("b", 3, 10, 1, 10)}, []string{"", ""}},
		{"waits that end", []LockReport{lock("a", 1, 10, 2, 20), lock("b", 2, 20, 3, 0)}, []string{"", ""}},
		{"inside itself", []LockReport{lock("a", 1, 10, 1, 10)}, []string{`deadlock: process 10 of host 1 holds "a" and waits for "a": end a waiter`}},
		{"three", []LockReport{lock("a", 1, 10, 3, 30), lock("b", 2, 20, 1, 10), lock("c", 3, 30, 2, 20)}, []string{
			`deadlock: process 10 of host 1 holds "a" and waits for "b"; process 20 of host 2 holds "b" and waits for "c"; process 30 of host 3 holds "c" and waits for "a": end a waiter`,
			`deadlock: process 20 of host 2 holds "b" and waits for "c"; process 30 of host 3 holds "c" and waits for "a"; process 10 of host 1 holds "a" and waits for "b": end a waiter`,
			`deadlock: process 30 of host 3 holds "c" and waits for "a"; process 10 of host 1 holds "a" and waits for "b"; process 20 of host 2 holds "b" and waits for "c": end a waiter`}},
	} {
		r := &Report{Locks: test.locks}
		r.explain()
		for i, want := range test.want {
			require.Equal(t, want, r.Locks[i].Stuck, test.name)
		}
	}
}

// TestReport_SamePidOfTwoNamespaces_NoDeadlock: the process that holds the lock is another one.
func TestReport_SamePidOfTwoNamespaces_NoDeadlock(t *testing.T) {
	since := time.Unix(5, 0)
	r := &Report{Locks: []LockReport{{Name: "a", Permits: 1, Holders: []HolderReport{{Host: 1, PID: 7, Since: since.Add(time.Second)}},
		Queue: []QueueReport{{Host: 1, Under: 7, underSince: since, Phase: layout.Waiting}}}}}
	r.explain()
	require.NotContains(t, r.Locks[0].Stuck, "deadlock")
}

func TestReport_SeveralPermits_NoDeadlock(t *testing.T) {
	r := &Report{Locks: []LockReport{{Name: "a", Permits: 2, Holders: []HolderReport{{Host: 1, PID: 10}},
		Queue: []QueueReport{{Host: 1, Under: 10, Phase: layout.Waiting}}}}}
	r.explain()
	require.NotContains(t, r.Locks[0].Stuck, "deadlock")
}
