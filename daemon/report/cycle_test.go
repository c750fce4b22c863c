package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestReport_CycleBetweenHosts_IsADeadlock(t *testing.T) {
	lock := func(name string, holder, holderPID, waiter, under int) Lock {
		return Lock{Name: name, Permits: 1,
			Holders: []Holder{{Host: holder, PID: holderPID}},
			Queue:   []Queued{{Host: waiter, Phase: layout.Waiting, Under: under}}}
	}
	for _, test := range []struct {
		name  string
		locks []Lock
		want  []string
	}{
		{"two hosts, opposite order", []Lock{lock("a", 1, 10, 2, 20), lock("b", 2, 20, 1, 10)}, []string{
			`deadlock: process 10 of host 1 holds "a" and waits for "b"; process 20 of host 2 holds "b" and waits for "a": end a waiter`,
			`deadlock: process 20 of host 2 holds "b" and waits for "a"; process 10 of host 1 holds "a" and waits for "b": end a waiter`}},
		{"the waits are of other processes", []Lock{lock("a", 1, 10, 2, 20), lock("b", 2, 21, 1, 10)}, []string{"", ""}},
		{"the same pid on another host", []Lock{lock("a", 1, 10, 2, 10), lock("b", 3, 10, 1, 10)}, []string{"", ""}},
		{"waits that end", []Lock{lock("a", 1, 10, 2, 20), lock("b", 2, 20, 3, 0)}, []string{"", ""}},
		{"inside itself", []Lock{lock("a", 1, 10, 1, 10)}, []string{`deadlock: process 10 of host 1 holds "a" and waits for "a": end a waiter`}},
		{"three", []Lock{lock("a", 1, 10, 3, 30), lock("b", 2, 20, 1, 10), lock("c", 3, 30, 2, 20)}, []string{
			`deadlock: process 10 of host 1 holds "a" and waits for "b"; process 20 of host 2 holds "b" and waits for "c"; process 30 of host 3 holds "c" and waits for "a": end a waiter`,
			`deadlock: process 20 of host 2 holds "b" and waits for "c"; process 30 of host 3 holds "c" and waits for "a"; process 10 of host 1 holds "a" and waits for "b": end a waiter`,
			`deadlock: process 30 of host 3 holds "c" and waits for "a"; process 10 of host 1 holds "a" and waits for "b"; process 20 of host 2 holds "b" and waits for "c": end a waiter`}},
	} {
		r := &Report{Locks: test.locks}
		r.explainStuck()
		for i, want := range test.want {
			require.Equal(t, want, r.Locks[i].Stuck, test.name)
		}
	}
}

// TestReport_SamePidOfTwoNamespaces_NoDeadlock: the process that holds the lock is another one.
func TestReport_SamePidOfTwoNamespaces_NoDeadlock(t *testing.T) {
	since := time.Unix(5, 0)
	r := &Report{Locks: []Lock{{Name: "a", Permits: 1, Holders: []Holder{{Host: 1, PID: 7, Since: since.Add(time.Second)}},
		Queue: []Queued{{Host: 1, Under: 7, UnderSince: since, Phase: layout.Waiting}}}}}
	r.explainStuck()
	require.NotContains(t, r.Locks[0].Stuck, "deadlock")
}

func TestReport_SeveralPermits_NoDeadlock(t *testing.T) {
	r := &Report{Locks: []Lock{{Name: "a", Permits: 2, Holders: []Holder{{Host: 1, PID: 10}},
		Queue: []Queued{{Host: 1, Under: 10, Phase: layout.Waiting}}}}}
	r.explainStuck()
	require.NotContains(t, r.Locks[0].Stuck, "deadlock")
}
