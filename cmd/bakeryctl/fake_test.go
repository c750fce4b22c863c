package main

import (
	"testing"

	"github.com/bakeryd/bakeryd/daemon/client/clienttest"
)

var token = clienttest.Token

type (
	exchange    = clienttest.Exchange
	wanted      = clienttest.Request
	fakeBakeryd = clienttest.Bakeryd
)

// holding grants every lock for so long that nothing depends on renewals.
var holding = clienttest.Holding

// serve runs a fake bakeryd that answers every request by a script.
func serve(t *testing.T, script clienttest.Script) *fakeBakeryd {
	t.Helper()
	return clienttest.Serve(t, script)
}
