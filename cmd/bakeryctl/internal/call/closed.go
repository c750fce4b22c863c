package call

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// closedHint returns the hint for a socket that this user may not open. Names are those of the files in /etc:
// package os/user would make bakeryctl lock start later.
func closedHint(err error) string {
	var socket syscall.Stat_t
	gid := -1
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil && syscall.Stat(op.Addr.String(), &socket) == nil {
		gid = int(socket.Gid)
	}
	groups, _ := os.ReadFile("/etc/group")
	users, _ := os.ReadFile("/etc/passwd")
	return joinHint(gid, string(groups), cmp.Or(nameOf(os.Getuid(), string(users)), os.Getenv("LOGNAME"), "USER"))
}

// joinHint returns how a user joins the group of the socket, -1 if that is not known.
func joinHint(gid int, groups, user string) string {
	if gid == 0 {
		return hintClosed + " only: run the command as root"
	}
	group := "bakery"
	if gid > 0 {
		group = cmp.Or(nameOf(gid, groups), strconv.Itoa(gid))
	}
	return fmt.Sprintf("%s, and group %s; as root: run usermod -aG %s %s, then log in again", hintClosed, group, group, user)
}

// nameOf returns the name with a number in group(5) or passwd(5), "" if there is none.
func nameOf(id int, table string) string {
	for line := range strings.Lines(table) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[2] == strconv.Itoa(id) {
			return f[0]
		}
	}
	return ""
}
