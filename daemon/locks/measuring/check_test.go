package measuring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzWord: the words that two hosts exchange in a coherence check.
func FuzzWord(f *testing.F) {
	f.Add(checkWord{wordMagic, 1, 2, 3, 4}.encode())
	f.Add(wordMagic[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if w := decodeWord(b); w != (checkWord{}) {
			require.Equal(t, b, w.encode())
		}
	})
}
