package wire

import (
	"fmt"
	"syscall"
)

// Code is the result of a request: 0 or a positive value, a negative errno, or one of the codes below.
type Code int32

// The codes of sanlock_rv.h, without those of ballots, requests and the resource index.
const (
	OK            Code = 0
	General       Code = -201
	AioTimeout    Code = -202
	WatchdogError Code = -203

	LeaderRead       Code = -220
	LeaderWrite      Code = -221
	LeaderDiff       Code = -222
	LeaderMagic      Code = -223
	LeaderVersion    Code = -224
	LeaderSectorSize Code = -225
	LeaderLockspace  Code = -226
	LeaderResource   Code = -227
	LeaderNumHosts   Code = -228
	LeaderChecksum   Code = -229

	AddLockspaceSizes  Code = -230
	AddLockspaceHostID Code = -231

	AcquireLver       Code = -240
	AcquireLockspace  Code = -241
	AcquireIddisk     Code = -242
	AcquireIdlive     Code = -243
	AcquireOwned      Code = -244
	AcquireOther      Code = -245
	AcquireShretry    Code = -246
	AcquireOwnedRetry Code = -247

	ReleaseLver  Code = -250
	ReleaseOwner Code = -251

	HostidBusy Code = -262
)

var codes = map[Code]string{
	General:            "general error",
	AioTimeout:         "disk IO timed out",
	WatchdogError:      "the watchdog device does not work",
	LeaderRead:         "reading a leader record failed",
	LeaderWrite:        "writing a leader record failed",
	LeaderDiff:         "leader records differ",
	LeaderMagic:        "the disk has no leader record at this offset",
	LeaderVersion:      "unknown version of a leader record",
	LeaderSectorSize:   "a leader record has another sector size",
	LeaderLockspace:    "a leader record has another lockspace name",
	LeaderResource:     "a leader record has another resource name",
	LeaderNumHosts:     "a leader record has a wrong number of hosts",
	LeaderChecksum:     "a leader record has a wrong checksum",
	AddLockspaceSizes:  "the lockspace has an invalid sector size or alignment",
	AddLockspaceHostID: "the host id is too great for the lockspace",
	AcquireLver:        "the resource has another version",
	AcquireLockspace:   "unknown lockspace",
	AcquireIddisk:      "the disk of the lockspace cannot be opened",
	AcquireIdlive:      "a live host holds the resource",
	AcquireOwned:       "another host holds the resource",
	AcquireOther:       "another host acquired the resource",
	AcquireShretry:     "the resource is held in another mode",
	AcquireOwnedRetry:  "another host holds the resource; it may be free later",
	ReleaseLver:        "the released resource has another version",
	ReleaseOwner:       "another host holds the released resource",
	HostidBusy:         "another host uses the host id",
}

// Errno returns the code of a system error.
func Errno(e syscall.Errno) Code { return -Code(e) }

// String returns the number of the code and its meaning.
func (c Code) String() string {
	if text, ok := codes[c]; ok {
		return fmt.Sprintf("%d (%s)", int32(c), text)
	}
	if c < 0 && c > General {
		return fmt.Sprintf("%d (%v)", int32(c), syscall.Errno(-c))
	}
	return fmt.Sprint(int32(c))
}

// Error returns the text of String.
func (c Code) Error() string { return c.String() }
