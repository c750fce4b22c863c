package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFaults_TextsThatTheyReplace_AreInTheCode: only test/all --full runs the faults.
func TestFaults_TextsThatTheyReplace_AreInTheCode(t *testing.T) {
	for _, f := range slices.Concat(faults, memberFaults) {
		_, err := replaced(t.TempDir(), "../../..", f.patches)
		require.NoError(t, err, f.name)
	}
}
