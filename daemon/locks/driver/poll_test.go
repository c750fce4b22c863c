package driver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadsAll(t *testing.T) {
	require.True(t, readsAll(1, 1, nextRead), "the next host saves a read by that")
	require.False(t, readsAll(1, rankPolls, nextRead+1), "or looks at the one slot")
	require.True(t, readsAll(2, 1, cheapRead), "a small read costs as much as one slot")
	require.False(t, readsAll(2, 1, cheapRead+1))
	require.True(t, readsAll(2, rankPolls, cheapRead+1), "but every rankPolls-th poll reads all")
}
