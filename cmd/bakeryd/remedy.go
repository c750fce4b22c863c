package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/internal/advice"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/hostid"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/membership"
	"github.com/bakeryd/bakeryd/daemon/server"
)

// envFile is the file with the variables of the packaged unit.
const envFile = "/etc/bakery/bakeryd.env"

// wrongSettings returns the text for an error of parse.
func wrongSettings(err error) string {
	what, hint := "wrong command line", flags.Hint(err, "bakeryd --help")
	switch {
	case strings.HasPrefix(err.Error(), "BAKERYD_"):
		what, hint = "wrong environment", "correct it, for the packaged unit in "+envFile+"; bakeryd --help has the values"
	case errors.Is(err, errNoDevice):
		hint = "give --device PATH, or set BAKERYD_DEVICE, for the packaged unit in " + envFile
	}
	return fmt.Sprintf("bakeryd: %s: %v\nhint: %s\n", what, err, hint)
}

// remedy returns what to do about an error that ended bakeryd; "" if the error has it.
func (o *options) remedy(err error) string {
	var setting *hostid.SettingError
	switch {
	case errors.Is(err, errSocket):
		return o.remedyOfSocket(err)
	case errors.As(err, &setting):
		return o.remedyOfSetting(setting)
	case errors.Is(err, daemon.ErrWatchdog), errors.Is(err, fdlimit.ErrLimits):
		return ""
	case errors.Is(err, membership.ErrFenceAgent):
		return advice.Find(err, []advice.Hint{{Err: fs.ErrPermission, Text: "run bakeryd as root: commands of persistent reservations need CAP_SYS_ADMIN or CAP_SYS_RAWIO"}})
	case errors.Is(err, lease.ErrInUse), errors.Is(err, hostid.ErrTaken):
		return fmt.Sprintf("set %s to another id, or to auto; bakeryctl hosts lists those in use", o.setting("host-id"))
	case errors.Is(err, lease.ErrNotLeft):
		return fmt.Sprintf("if the machine that had the id is gone, or was installed again as this one, run bakeryctl evict %d --forget on another host; otherwise set %s to another id",
			o.daemon.HostID, o.setting("host-id"))
	case errors.Is(err, lease.ErrFull):
		return "stop bakeryd on a host that is not needed, or free the id of one that is gone for good: bakeryctl evict ID --forget"
	}
	device := []advice.Hint{{Err: fs.ErrNotExist, Text: fmt.Sprintf("correct %s, or attach the device: lsblk lists those of this host", o.setting("device"))}, advice.NotDevice}
	return advice.Find(err, append(append([]advice.Hint{}, advice.Device...), device...))
}

// remedyOfSocket is the remedy for an errSocket.
func (o *options) remedyOfSocket(err error) string {
	name := o.setting("socket")
	other := fmt.Sprintf("set %s to another path", name)
	dir := filepath.Dir(o.socket)
	switch {
	case errors.Is(err, server.ErrKilled):
		return "check the disks (dmesg); if the IO never ends, reboot this host"
	case errors.Is(err, server.ErrServed):
		return other + ", for a second bakeryd on this host, or stop the one that runs"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("run bakeryd as root, or set %s to a path in a directory of its user: %s is not", name, dir)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("remove %s, which is no socket, or %s", o.socket, other)
	case errors.Is(err, syscall.EINVAL):
		return other + ": that of a socket has at most 107 bytes"
	}
	return fmt.Sprintf("%s, in a directory that exists or can be created", other)
}

// remedyOfSetting is the remedy for a setting that only the lockspace or the machine shows to be wrong.
func (o *options) remedyOfSetting(of *hostid.SettingError) string {
	name := o.setting(of.Flag)
	switch {
	case of.Flag == "host-id":
		return fmt.Sprintf("set %s to one of these, or to auto", name)
	case of.Flag == "name":
		return "correct " + name
	case errors.Is(of.Err, fs.ErrPermission):
		return fmt.Sprintf("run bakeryd as root, or set %s to a directory that its user can write to", name)
	}
	return fmt.Sprintf("set %s to a directory, or to a path where one can be created", name)
}
