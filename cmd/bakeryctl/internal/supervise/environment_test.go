package supervise

import (
	"strings"
	"testing"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/test/clienttest"
)

// The session and socket are those of the innermost lock.
func TestLaunch_EnclosedByAnotherLock_GetsOwnSession(t *testing.T) {
	t.Setenv(EnvSession, "of the one around")
	t.Chdir("/")
	l := Launch{Lock: "x"}
	h := &Grant{Token: client.Token(clienttest.Token), HostID: 7}
	find := func(env []string, name string) (value string, n int) {
		for _, v := range env {
			if rest, ok := strings.CutPrefix(v, name+"="); ok {
				value, n = rest, n+1
			}
		}
		return value, n
	}
	if v, n := find(l.environment(h), EnvSession); n != 0 {
		t.Errorf("session %q, want none: it belongs to another hold", v)
	}
	l.Session, l.Socket = "of this", "run/sock"
	env := l.environment(h)
	if v, n := find(env, EnvSession); v != "of this" || n != 1 {
		t.Errorf("session %q, %d times", v, n)
	}
	if v, _ := find(env, envSocket); v != "/run/sock" {
		t.Errorf("socket %q, want an absolute path", v)
	}
}
