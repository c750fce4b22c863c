package client

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/clienttest"
)

func TestHold_EventOfAnEarlierModeComesLate_KeepsTheLaterMode(t *testing.T) {
	late := make(chan struct{})
	b := clienttest.Serve(t, func(x *exchange) {
		x.Grant(time.Minute)
		<-late
		x.Send(`{"event":"mode","mode":"shared","change":1}`)
		x.Renew(2 * time.Minute)
		<-x.Gone
	})
	h := mustLock(t, b.Socket, Options{})
	n := 0
	b.Answer("POST /v1/mode", func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprintf(w, `{"mode":%q,"token":%q,"change":%d}`, *readChange(t, r).Mode, token, n)
	})
	for _, mode := range []Mode{Shared, Exclusive} {
		require.NoError(t, h.SetMode(t.Context(), mode))
		require.Equal(t, mode, h.Mode())
	}
	close(late)
	eventually(t, "the late api.Event is read", func() bool { return time.Until(h.Deadline()) > time.Minute })
	require.Equal(t, Exclusive, h.Mode())
}
