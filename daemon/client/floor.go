package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// FloorRound is the device's time for the three requests of an uncontended lock and unlock.
type FloorRound struct {
	Claim   time.Duration `json:"claim_ns"`
	Look    time.Duration `json:"look_ns"`
	Release time.Duration `json:"release_ns"`
}

// Floor makes bakeryd issue these requests back to back in the slots of an existing lock. It also
// returns how many slots one read covers. Only root and bakeryd's own user may call it, and nothing
// else may use the lock meanwhile. It returns an *Error (api.CodeMissing: there is no such lock;
// api.CodeForbidden), ErrUnreachable, ErrProtocol, or the cause of ctx's end.
func (c *Client) Floor(ctx context.Context, name string, rounds int) ([]FloorRound, int, error) {
	body := struct {
		Name   string `json:"name"`
		Rounds int    `json:"rounds"`
	}{name, rounds}
	var answer struct {
		Slots  int          `json:"slots"`
		Rounds []FloorRound `json:"rounds"`
	}
	err := c.Call(ctx, http.MethodPost, "/v1/floor", body, &answer)
	if err == nil && len(answer.Rounds) != rounds {
		err = fmt.Errorf("%w: %d rounds", ErrProtocol, len(answer.Rounds))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("floor of lock %q: %w", name, err)
	}
	return answer.Rounds, answer.Slots, nil
}
