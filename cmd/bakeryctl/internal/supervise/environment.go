package supervise

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// By these a command reaches the hold that it runs under.
const (
	EnvSession = "BAKERY_SESSION"
	EnvToken   = "BAKERY_TOKEN"
	envSocket  = "BAKERY_SOCKET"
)

// surroundings is the environment that the command gets, but for what it is told of its lock: that of another lock
// around this one means nothing to it.
func surroundings() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, EnvSession+"=") {
			env = append(env, v)
		}
	}
	return env
}

// reach is what the command needs to reach its hold; nothing if that is not bakeryd's.
func (g *Grant) reach() []string {
	if g.Session == "" {
		return nil
	}
	socket := g.Socket
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs // the command may go elsewhere
	}
	return []string{EnvSession + "=" + g.Session, envSocket + "=" + socket}
}

// additions are what the command's environment has beyond that of this process.
func (l Launch) additions(g *Grant) []string {
	return append([]string{"BAKERY_LOCK=" + l.Lock, EnvToken + "=" + g.Token().String(), "BAKERY_HOST_ID=" + strconv.Itoa(g.HostID)}, g.reach()...)
}

// environment is what the scripts of --on-lost and --on-request get.
func (l Launch) environment(g *Grant) []string { return append(surroundings(), l.additions(g)...) }
