package daemon

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/test/processtest"
)

func (s *served) floor(body string) (status int, f measuring.Floor, e *api.Error) {
	s.t.Helper()
	client := http.Client{Transport: s.transport()}
	resp, err := client.Post("http://bakery/v1/floor", "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	var answer struct {
		measuring.Floor
		Error api.Error
	}
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&answer))
	return resp.StatusCode, answer.Floor, &answer.Error
}

func TestFloorAPI(t *testing.T) {
	c := realCluster(t, 8, 4)
	s := serveSocket(t, c.host(1))
	require.NoError(t, acquire(t, s.d, locks.Request{Name: "x"}).Release())
	status, f, _ := s.floor(`{"name": "x", "rounds": 7}`)
	require.Equal(t, http.StatusOK, status)
	require.Len(t, f.Rounds, 7)
	require.Equal(t, s.d.mem.Highest(), f.Slots)
	require.Positive(t, f.Rounds[6].Whole())
	for _, bad := range []struct {
		body, code, message string
		status              int
	}{
		{`{"name": "x", "rounds": 0}`, "invalid", "rounds 0, want 1 to 1000", 400},
		{`{"name": "x", "round": 1}`, "invalid", "rounds 0, want 1 to 1000", 400},
		{`{"name": "y", "rounds": 1}`, "missing", `"y"`, 404},
	} {
		status, _, e := s.floor(bad.body)
		require.Equal(t, bad.status, status)
		require.Equal(t, bad.code, e.Code)
		require.Contains(t, e.Message, bad.message)
	}
}

// TestFloorIsForRoot: no other user that may take locks may load the device.
func TestFloorIsForRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: needs root, to become another user")
	}
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	require.NoError(t, acquire(t, s.d, locks.Request{Name: "x"}).Release())
	dir, socket := filepath.Split(s.path)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(s.path, 0o666))
	const nobody = 65534
	done := make(chan struct{})
	processtest.OnOwnThread(func() {
		defer close(done)
		// For this thread only. The other user may have no access to the directories above.
		if !assertNoError(t, unix.Unshare(unix.CLONE_FS)) || !assertNoError(t, unix.Chdir(dir)) {
			return
		}
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); no != 0 {
			t.Errorf("change the user: %v", no)
			return
		}
		conn, err := net.Dial("unix", socket)
		if !assertNoError(t, err) {
			return
		}
		defer conn.Close()
		body := `{"name": "x", "rounds": 1}`
		_, err = conn.Write([]byte("POST /v1/floor HTTP/1.1\r\nHost: bakery\r\nContent-Length: 26\r\n\r\n" + body))
		assertNoError(t, err)
		answer := make([]byte, 1024)
		n, err := conn.Read(answer)
		assertNoError(t, err)
		if text := string(answer[:n]); !strings.Contains(text, "403 Forbidden") || !strings.Contains(text, "root and the user of bakeryd") {
			t.Errorf("answer %q", text)
		}
	})
	within(t, "an answer", func() { <-done })
}
