package process

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzStat checks that a process cannot imitate another one by the name that it gives itself.
func FuzzStat(f *testing.F) {
	f.Add("sh", 7, 1, 1, uint64(99))
	f.Add(") R 1 1 1 (", 7, 1, 1, uint64(99))
	f.Add("a\n1 (b) Z 0", 7, 1, 1, uint64(1<<63))
	f.Fuzz(func(t *testing.T, name string, pid, parent, threads int, started uint64) {
		text := fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 %d 1 1 1\n", pid, name, parent, threads, started)
		s, err := parse(text)
		require.NoError(t, err)
		require.Equal(t, Stat{ID: ID{pid, started}, Parent: parent, State: 'S', Threads: threads}, s)
		_, _ = parse(name) // does not panic
	})
}
