package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

func TestServed_Floor(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	answer := `{"slots": 3, "rounds": [{"claim_ns": 1, "look_ns": 2, "release_ns": 3}, {"claim_ns": 4, "look_ns": 5, "release_ns": 6}]}`
	b.Answer("POST /v1/floor", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Name   string
			Rounds int
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Name != "x" || body.Rounds != 2 {
			t.Errorf("asked for %+v, %v", body, err)
		}
		fmt.Fprint(w, answer)
	})
	h := served(b.Socket, "x")
	f, err := h.floor(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, &measuring.Floor{Slots: 3, Rounds: []measuring.FloorRound{{Claim: 1, Look: 2, Release: 3}, {Claim: 4, Look: 5, Release: 6}}}, f)

	answer = `{"slots": 3, "rounds": []}`
	_, err = h.floor(t.Context(), 2)
	require.ErrorIs(t, err, client.ErrProtocol, "fewer rounds than requested")

	b.Answer("POST /v1/floor", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error": {"code": "forbidden", "message": "for root only", "hint": "run it as root"}}`)
	})
	_, err = h.floor(t.Context(), 2)
	var refusal *client.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, api.CodeForbidden, refusal.Code)
	require.ErrorIs(t, err, client.ErrForbidden)
	require.EqualError(t, err, `floor of lock "x": for root only`)
}

// TestHighest_MoreHostsJoinLater_IsThatOfTheFloor: it describes the reads of the floor that is shown.
func TestHighest_MoreHostsJoinLater_IsThatOfTheFloor(t *testing.T) {
	r := newRun(t.Context(), Options{Duration: time.Nanosecond})
	slots := 3
	h := &host{floor: func(context.Context, int) (*measuring.Floor, error) {
		return &measuring.Floor{Slots: slots, Rounds: []measuring.FloorRound{{Claim: 1, Look: 2, Release: 3}}}, nil
	}}
	for ; slots <= 4; slots++ {
		counted := newTimes()
		_, err := r.repeatWithFloor(h, counted, func([]time.Duration) error { counted.Add(1); return nil })
		require.NoError(t, err)
	}
	require.Equal(t, 3, r.res.Highest)
}
