package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilence_TwoOfThreeDisksAtOnce_Counts: one disk does not, nor the time that every read may take.
func TestSilence_TwoOfThreeDisksAtOnce_Counts(t *testing.T) {
	const ms = time.Millisecond
	reads := parseProbe([]byte(`{"disk":1,"began":100000000}
{"disk":2,"began":1000000000,"took":500000000}
{"disk":1,"began":100000000,"took":1200000000}
{"disk":0,"began":0,"took":9000000000}
{"disk":3,"began":2000000000}
{"disk":1,"began":2500000000}
{"di`))
	require.Len(t, reads, 5)
	for _, c := range []struct{ from, to, silent time.Duration }{
		{0, 1000 * ms, 0},
		{0, 2000 * ms, 250 * ms}, // from 1050 to 1300
		{1100 * ms, 1200 * ms, 100 * ms},
		{1300 * ms, 2500 * ms, 0},
		{2500 * ms, 3500 * ms, 950 * ms}, // no answer until the end
	} {
		require.Equal(t, c.silent, silence(reads, 3, c.from, c.to), "%+v", c)
	}
}
