//go:build !race

package handover

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFile_PagesCanOnlyBeRead_IsRemovedBeforeTheChangeReturns: a store to a page of a full btrfs fails, and
// the page can be read. A process killed then would leave a file without a grant that a client was
// sent. The race detector stores by functions in C, from which a fault is no panic.
func TestFile_PagesCanOnlyBeRead_IsRemovedBeforeTheChangeReturns(t *testing.T) {
	j := newFile(t)
	require.NoError(t, put(j, aSession(1)))
	j.Reserve(aSession(2).ID)
	require.NoError(t, unix.Mprotect(j.mem, unix.PROT_READ))
	j.Put(aSession(2))
	require.ErrorContains(t, j.Err(), "a page cannot be accessed")
	require.NoFileExists(t, j.Path)
	<-j.Void()
	j.Put(aSession(3))
	require.NoError(t, j.Discard())
}

// TestNotes_PagesCanOnlyBeRead_VoidTheHandoverFile: before the write begins.
func TestNotes_PagesCanOnlyBeRead_VoidTheHandoverFile(t *testing.T) {
	j, n := newNotes(t)
	require.NoError(t, unix.Mprotect(j.notes, unix.PROT_READ))
	require.NoError(t, n.Put(1, noteOf(t, 1, 9)))
	require.ErrorContains(t, j.Err(), "a page cannot be accessed")
	_, err := resumeIn(filepath.Dir(j.Path))
	require.ErrorContains(t, err, "could not write a record")
}
