package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorOf_EveryRow_SurvivesTheWire: errors.Is finds the server's error on the client, unless
// its code stands for several errors.
func TestErrorOf_EveryRow_SurvivesTheWire(t *testing.T) {
	for _, row := range table {
		require.Contains(t, Codes(), row.code)
		sent := ErrorOf(fmt.Errorf("lock %q: %w", "x", row.err))
		require.Equal(t, &Error{Code: row.code, Message: fmt.Sprintf("lock %q: %v", "x", row.err), Hint: row.hint}, sent)
		text, err := json.Marshal(sent)
		require.NoError(t, err)
		got := new(Error)
		require.NoError(t, json.Unmarshal(text, got))
		require.Equal(t, row.code != CodeUnavailable && row.code != CodeDevice, errors.Is(got, row.err), row.err)
	}
	for _, code := range Codes() {
		known := code == CodeDevice || slices.ContainsFunc(table, func(r row) bool { return r.code == code })
		require.True(t, known, code)
	}
}

func TestErrorOf_UnknownError_IsTheDevices(t *testing.T) {
	e := ErrorOf(errors.New("input/output error"))
	require.Equal(t, CodeDevice, e.Code)
	require.Equal(t, http.StatusInternalServerError, e.Status())
	require.Equal(t, exitNoDevice, e.ExitCode())
}

func TestError_Status_IsOneOfHTTP(t *testing.T) {
	want := map[int]string{
		200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 410: "Gone",
		500: "Internal Server Error", 503: "Service Unavailable", 507: "Insufficient Storage",
	}
	for _, code := range Codes() {
		status := (&Error{Code: code}).Status()
		require.Equal(t, want[status], http.StatusText(status), code)
		require.NotEmpty(t, want[status], code)
	}
}

type hinted struct{ error }

func (hinted) Hint() string { return "ask the administrator" }

func (h hinted) Unwrap() error { return h.error }

func TestErrorOf_ErrorWithAHint_KeepsIt(t *testing.T) {
	require.Equal(t, &Error{Code: CodeForbidden, Message: "not allowed", Hint: "ask the administrator"}, ErrorOf(hinted{ErrForbidden}))
}

func TestError_UnknownCode_IsUnavailable(t *testing.T) {
	e := &Error{Code: "news"}
	require.Equal(t, `refused by bakeryd: "news"`, e.Error())
	require.Equal(t, exitUnavailable, e.ExitCode())
}
