package area

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

var (
	root  = Peer{}
	space = layout.UUID{1, 2, 3}
)

func TestAreas_Write_IsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	a := New(Config{UUID: space})
	n, err := a.Align(t.Context(), root, path)
	require.NoError(t, err)
	require.Equal(t, 1<<20, n)
	want, err := a.Write(t.Context(), root, Record{Kind: Lockspace, Lockspace: "ls"}, path, 1<<20)
	require.NoError(t, err)
	got, err := a.Read(t.Context(), root, Lockspace, path, 1<<20, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = a.Read(t.Context(), root, Lockspace, path, 2<<20, 0)
	require.Equal(t, int32(-90), err.(*Error).Code)
	require.NoError(t, a.Clear(t.Context(), root, Lockspace, path, 1<<20, 0))
	_, err = a.Read(t.Context(), root, Lockspace, path, 1<<20, 0)
	require.Equal(t, int32(codeMagic), err.(*Error).Code)
}
