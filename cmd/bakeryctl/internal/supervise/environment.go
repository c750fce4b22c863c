package supervise

import (
	"os"
	"path/filepath"
	"slices"
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
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, EnvSession+"=") })
}

// additions returns the variables that the command's environment adds to surroundings.
func (l Launch) additions(g *Grant) []string {
	env := []string{"BAKERY_LOCK=" + l.Lock, EnvToken + "=" + g.Token().String(), "BAKERY_HOST_ID=" + strconv.Itoa(g.HostID)}
	if g.Session != "" {
		socket := g.Socket
		if abs, err := filepath.Abs(socket); err == nil {
			socket = abs // the command may change its directory
		}
		env = append(env, EnvSession+"="+g.Session, envSocket+"="+socket)
	}
	return env
}

// environment returns the environment of the scripts of --on-lost and --on-request.
func (l Launch) environment(g *Grant) []string { return append(surroundings(), l.additions(g)...) }
