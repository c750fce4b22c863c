package supervise

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A command reaches the hold that it runs under by these environment variables.
const (
	EnvSession = "BAKERY_SESSION"
	EnvToken   = "BAKERY_TOKEN"
	envSocket  = "BAKERY_SOCKET"
)

// surroundings returns this process's environment without the session of a lock that encloses the
// command's own lock.
func surroundings() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, EnvSession+"=") {
			env = append(env, v)
		}
	}
	return env
}

// reach returns the variables by which a command reaches its hold, or nil if bakeryd does not hold
// it.
func (g *Grant) reach() []string {
	if g.Session == "" {
		return nil
	}
	socket := g.Socket
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs // the command may change its directory
	}
	return []string{EnvSession + "=" + g.Session, envSocket + "=" + socket}
}

// additions returns the variables that the command's environment adds to surroundings.
func (l Launch) additions(g *Grant) []string {
	return append([]string{"BAKERY_LOCK=" + l.Lock, EnvToken + "=" + g.Token().String(), "BAKERY_HOST_ID=" + strconv.Itoa(g.HostID)}, g.reach()...)
}

// environment returns the environment of the scripts of --on-lost and --on-request.
func (l Launch) environment(g *Grant) []string { return append(surroundings(), l.additions(g)...) }
