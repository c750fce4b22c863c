package stress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

// The lock that a run has created is removed once, after the last worker. If that fails the caller hears of it.
func TestLast_AllLeft_RemovesTheLock(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		created          bool
		err              error
		removed, remains int
	}{
		{true, nil, 1, 0},
		{true, refused, 1, 1},
		{true, api.ErrNoLock, 1, 0},
		{false, nil, 0, 0},
	} {
		removed, remains := 0, 0
		l := &last{left: 2, run: &run{cfg: Config{Remains: func(err error) {
			require.ErrorIs(t, err, refused)
			remains++
		}}}}
		remove := func(context.Context) error {
			removed++
			return test.err
		}
		l.leaves(test.created, remove)
		require.Zero(t, removed)
		l.leaves(test.created, remove)
		require.Equal(t, []int{test.removed, test.remains}, []int{removed, remains}, "%+v", test)
	}
}

// TestLast_LockIsBusy_TriesAgainForABoundedTime: a bakeryd may still keep it for its next client.
func TestLast_LockIsBusy_TriesAgainForABoundedTime(t *testing.T) {
	for _, busy := range []int{1, 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			removed := 0
			var remains error
			l := &last{left: 1, run: &run{cfg: Config{Remains: func(err error) { remains = err }}}}
			l.leaves(true, func(context.Context) error {
				if removed++; removed <= busy {
					return fmt.Errorf("remove: %w", api.ErrBusy)
				}
				return nil
			})
			if busy == 1 {
				require.NoError(t, remains)
				require.Equal(t, 2, removed)
			} else {
				require.ErrorIs(t, remains, api.ErrBusy)
				require.LessOrEqual(t, removed, 1+int(removeWithin/removeEvery))
			}
		})
	}
}

// TestClients_LockIsRemoved_WithoutWaiting: other clients must not queue behind the removal.
func TestClients_LockIsRemoved_WithoutWaiting(t *testing.T) {
	b := clienttest.Serve(t, nil)
	b.Answer("POST /v1/create", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"name":"x","permits":1,"created":true}`)
	})
	var removal struct {
		Name     string `json:"name"`
		NonBlock bool   `json:"nonblock"`
	}
	b.Answer("POST /v1/remove", func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&removal))
		fmt.Fprint(w, `{"name":"x"}`)
	})
	all, err := Clients([]string{b.Socket}, "x")(t.Context(), &run{cfg: Config{Workers: 2}})
	require.NoError(t, err)
	for _, worker := range all {
		require.NoError(t, worker.close())
	}
	require.Equal(t, "x", removal.Name)
	require.True(t, removal.NonBlock)
}
