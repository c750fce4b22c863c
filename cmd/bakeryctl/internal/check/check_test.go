package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/test/calltest"
)

// Without arguments, the disks are those of bakeryd that can be read.
func TestDevices(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status string
		want   []string
	}{
		{`{"lockspace": {"device": "/dev/a"}}`, []string{"/dev/a"}},
		{`{"disks": [{"device": "/dev/a", "state": "up"}, {"device": "/dev/b or /dev/c", "state": "down"}, {"device": "/dev/d", "state": "hangs"},
			{"device": "", "state": "down"}]}`, []string{"/dev/a", "/dev/b"}},
	} {
		found, err := Devices(t.Context(), calltest.Serve(t, 200, test.status).Socket)
		require.NoError(t, err)
		require.Equal(t, test.want, found)
	}
	_, err := Devices(t.Context(), calltest.Serve(t, 200, `{"lockspace": {"device": "a.img"}}`).Socket)
	var f *cli.Failure
	require.ErrorAs(t, err, &f)
	require.EqualError(t, err, "no DEVICE given, and bakeryd has the relative path a.img")
	require.Equal(t, "run bakeryctl check DEVICE..., with all disks of the lockspace", f.Hint)
}
