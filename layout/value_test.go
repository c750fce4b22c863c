package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

func TestValueOf(t *testing.T) {
	token := layout.MakeTicket(100, 3).Grant(7)
	for what, test := range map[string]struct {
		slot     layout.Slot
		creation uint64
		want     bool
	}{
		"of the entry":          {layout.Slot{Creation: 50, ValueToken: token}, 50, true},
		"a removal under way":   {layout.Slot{Creation: 102, ValueToken: token}, 50, true},
		"created again since":   {layout.Slot{Creation: 50, ValueToken: token}, 99, false},
		"removed, then created": {layout.Slot{Creation: 102, ValueToken: token}, 103, false},
		"numbers begin above":   {layout.Slot{Creation: 100, ValueToken: token}, 100, false},
		"never set":             {layout.Slot{Creation: 50}, 50, false},
		"a blank slot":          {layout.Slot{}, 0, false},
		"cleared is a word too": {layout.Slot{Creation: 50, ValueToken: token, Value: nil}, 50, true},
	} {
		require.Equal(t, test.want, test.slot.ValueOf(test.creation), what)
	}
	require.NoError(t, layout.ValidateValue(make([]byte, layout.MaxValue)))
	require.ErrorIs(t, layout.ValidateValue(make([]byte, layout.MaxValue+1)), layout.ErrField)
}
