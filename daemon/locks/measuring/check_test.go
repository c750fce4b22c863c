package measuring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzWord: the words that two hosts exchange in a coherence check.
func FuzzWord(f *testing.F) {
	f.Add(checkWord{round: 1, nonce: 2, echo: 3, rounds: 4}.encode())
	f.Add([]byte(wordMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, ok := decodeWord(b); ok {
			require.Equal(t, b, w.encode())
		}
	})
}
