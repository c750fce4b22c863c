package handover

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// hang queues a write that blocks until it is released, and starts it.
func hang(j *File) (release func()) {
	blocked := make(chan struct{})
	j.mu.Lock()
	n := j.enqueue(change{do: func() { <-blocked }})
	j.mu.Unlock()
	go func() { _ = j.Wait(n) }()
	synctest.Wait()
	return func() { close(blocked) }
}

func TestFile_Queued_IsWrittenByWaitInOrder(t *testing.T) {
	j := newFile(t)
	require.NoError(t, j.Put(aSession(1)))
	removal, put := j.QueueRemove(aSession(1).ID), j.QueuePut(aSession(2)) // into the cell that becomes free
	_, sessions := read(t, j)
	require.Equal(t, []Session{aSession(1)}, sessions, "nothing was written yet")
	require.NoError(t, j.Wait(put))
	_, sessions = read(t, j)
	require.Equal(t, []Session{aSession(2)}, sessions)
	require.NoError(t, j.Wait(removal), "written with the other")
	require.NoError(t, j.Wait(j.QueueRemove(aSession(1).ID)), "there is no such session")
}

func TestFile_WriteHangs_QueueDoesNotBlockAndWaitDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newFile(t)
		release := hang(j)
		first, second := j.QueuePut(aSession(1)), j.QueuePut(aSession(2))
		require.NoError(t, j.Wait(j.QueueRemove(aSession(3).ID)), "there is no such session")
		written := make(chan error, 2)
		for _, n := range []uint64{second, first} {
			go func() { written <- j.Wait(n) }()
		}
		intact := make(chan bool, 1)
		go func() { intact <- j.Intact() }()
		synctest.Wait()
		require.Empty(t, written)
		require.Empty(t, intact, "an earlier write may fail")
		release()
		require.NoError(t, <-written)
		require.NoError(t, <-written)
		require.True(t, <-intact)
		_, sessions := read(t, j)
		require.Equal(t, []Session{aSession(1), aSession(2)}, sessions)
	})
}

func TestFile_QueuedWriteFails_OneWaitReturnsTheError(t *testing.T) {
	j := newFile(t)
	require.NoError(t, j.Put(aSession(1)))
	good, bad, later := j.QueuePut(aSession(2)), j.QueuePut(Session{}), j.QueuePut(aSession(3))
	require.NoError(t, j.Wait(good), "the changes up to its number")
	require.False(t, j.Intact())
	require.ErrorContains(t, j.Wait(later), "write session to handover file "+j.Path)
	require.NoError(t, j.Wait(bad), "it was reported")
	require.NoFileExists(t, j.Path)
}

func TestFile_ClosedWithAQueue_WritesItFirst(t *testing.T) {
	j := newFile(t)
	n := j.QueuePut(aSession(1))
	j.Close()
	_, sessions := read(t, j)
	require.Equal(t, []Session{aSession(1)}, sessions)
	require.NoError(t, j.Wait(n))
	require.NoError(t, j.Wait(j.QueuePut(Session{})), "closed: an invalid session does no harm")
	require.FileExists(t, j.Path)
}
