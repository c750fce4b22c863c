package access

import (
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
)

// WithoutPolicy returns the rules of this process without a policy.
func WithoutPolicy() Rules {
	return Rules{Owner: os.Geteuid(),
		NobodyUID: Unmapped("/proc/self/uid_map", "/proc/sys/kernel/overflowuid"), NobodyGID: Unmapped("/proc/self/gid_map", "/proc/sys/kernel/overflowgid")}
}

// Unmapped is the number that the kernel shows of all that have none in this user namespace; -1: all have one.
func Unmapped(mapping, overflow string) int {
	text, err := os.ReadFile(mapping)
	if err != nil || strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295" {
		return -1 // without user namespaces there is no such file
	}
	if text, err = os.ReadFile(overflow); err == nil {
		if id, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return id
		}
	}
	return 65534
}

// SocketGroup is the group whose members may connect to the socket.
const SocketGroup = "bakery"

// SocketGID returns the number of SocketGroup, -1 if there is no such group. It looks the group up once: that may take long
// where groups are kept on another machine.
var SocketGID = sync.OnceValue(func() int { return GID(SocketGroup) })

// GID returns the number of a group, -1 if there is no such group.
func GID(group string) int {
	if g, err := user.LookupGroup(group); err == nil {
		if gid, err := strconv.Atoi(g.Gid); err == nil {
			return gid
		}
	}
	return -1
}
