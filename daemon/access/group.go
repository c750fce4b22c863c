package access

import (
	"os/user"
	"strconv"
	"sync"
)

// SocketGroup is the group whose members may connect to the socket.
const SocketGroup = "bakery"

// SocketGID returns the number of SocketGroup, -1 if there is no such group. It looks the group up once: that may take long
// where groups are kept on another machine.
var SocketGID = sync.OnceValue(func() int {
	if g, err := user.LookupGroup(SocketGroup); err == nil {
		if gid, err := strconv.Atoi(g.Gid); err == nil {
			return gid
		}
	}
	return -1
})
