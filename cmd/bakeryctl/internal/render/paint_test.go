package render

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColour_On(t *testing.T) {
	none := func(string) string { return "" }
	var out bytes.Buffer // no terminal
	require.False(t, colourAuto.On(&out, none))
	require.False(t, Colour("").On(&out, none))
	require.True(t, colourAlways.On(&out, func(string) string { return "1" }), "NO_COLOR does not override always")
	require.False(t, colourNever.On(&out, none))
	var c Colour
	require.ErrorContains(t, c.Set("yes"), "want auto, always or never")
	require.NoError(t, c.Set("never"))
	require.Equal(t, "never", c.String())
}
