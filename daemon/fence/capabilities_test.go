package fence

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCapabilities(t *testing.T) {
	for _, c := range []struct {
		name string
		lun  *lun
		want Capabilities
	}{
		{"all", &lun{}, Capabilities{Reported: true, AllRegistrants: true, CanPersist: true}},
		{"persists", &lun{persist: true}, Capabilities{Reported: true, AllRegistrants: true, CanPersist: true, Persists: true}},
		{"cannot persist", &lun{noPersist: true}, Capabilities{Reported: true, AllRegistrants: true}},
		{"does not report", &lun{noReport: true}, Capabilities{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &nexus{lun: c.lun, attentions: []uint16{0x2900}}
			got, err := scsi{dev: n}.capabilities(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestCapabilitiesCountsKeys(t *testing.T) {
	l := &lun{}
	for i := range 3 {
		require.NoError(t, scsi{dev: &nexus{lun: l}}.change(registerIgnore, 0, Key(i+1, 0xabc)))
	}
	got, err := scsi{dev: &nexus{lun: l}}.capabilities(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, got.Keys)
}

func TestCapabilitiesOfWhatHasNone(t *testing.T) {
	_, err := scsi{dev: &nexus{lun: &lun{none: true}}}.capabilities(t.Context())
	require.ErrorIs(t, err, ErrUnsupported)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = ReadCapabilities(t.Context(), file)
	require.ErrorIs(t, err, ErrUnsupported)
	_, err = ReadCapabilities(t.Context(), file+"-none")
	require.ErrorIs(t, err, os.ErrNotExist)
}
