// Package wire is the wire format of the socket of sanlock 3.8.5: the requests that
// libsanlock_client sends and the answers that it expects. It knows bytes, limits and names. It
// knows no socket, no clock, and not what a command does.
//
// A message is a header of 32 bytes and a body whose structure depends on the command. All integers
// are in host byte order, and structs have the layout of C on a 64-bit host. The source of the facts
// are the files sanlock_sock.h, sanlock.h, sanlock_resource.h, sanlock_admin.h and sanlock_rv.h of
// sanlock, and how its client.c, client_cmd.c, main.c and cmd.c send and receive.
//
// Start reading at Read.
package wire

import (
	"fmt"
	"math"
)

// The limits and sizes of the format. A field of NameLen bytes may be full, with no zero byte at its
// end; a path has one.
const (
	Magic   = 0x04282010
	Proto   = 1
	NameLen = 48
	PathLen = 1024

	HelperPathLen = 128
	HelperArgsLen = 128

	MaxResources = 8
	MaxDisks     = 4
	MaxLVB       = 4096
	MaxStateText = 4096 // of the text of a State, with its zero byte

	// MaxResourceText is the buffer in which libsanlock reads one resource of an answer to Inquire.
	// It does not check the length.
	MaxResourceText = 4400

	HeaderSize    = 32
	DiskSize      = PathLen + 16
	ResourceSize  = 2*NameLen + 32
	LockspaceSize = NameLen + 16 + DiskSize
	HostSize      = 32
	StateSize     = 80
	optionsSize   = NameLen + 8
	rindexSize    = 16 + NameLen + DiskSize
	rentrySize    = NameLen + 16
	eventSize     = 32

	// MaxMessage is the length of the longest request: Acquire with all resources and disks.
	MaxMessage = HeaderSize + MaxResources*(ResourceSize+MaxDisks*DiskSize) + optionsSize

	// MaxSkip is the length of the longest message that Read skips. A longer one ends the
	// connection.
	MaxSkip = 1 << 20

	// Self as Data2 of a request means the client that registered on this connection. Other values
	// are the id of a process that registered on another one.
	Self = math.MaxUint32
)

// Command is the code of a request.
type Command uint32

// The commands. Register and Shutdown have no answer.
const (
	Register           Command = 1
	AddLockspace       Command = 2
	RemLockspace       Command = 3
	Shutdown           Command = 4
	Status             Command = 5
	LogDump            Command = 6
	Acquire            Command = 7
	Release            Command = 8
	Inquire            Command = 9
	Restrict           Command = 10
	RequestResource    Command = 11 // sanlock_request; Request is the type
	Align              Command = 12
	ExamineLockspace   Command = 13
	ExamineResource    Command = 14
	HostStatus         Command = 15
	InqLockspace       Command = 16
	Killpath           Command = 17
	WriteLockspace     Command = 18
	WriteResource      Command = 19
	ReadLockspace      Command = 20
	ReadResource       Command = 21 // the client reads a resource after the header of an error too
	GetLockspaces      Command = 22
	GetHosts           Command = 23
	ReadResourceOwners Command = 24
	SetLVB             Command = 25
	GetLVB             Command = 26
	Convert            Command = 27
	Version            Command = 28
	ShutdownWait       Command = 29
	RegEvent           Command = 30
	EndEvent           Command = 31
	SetEvent           Command = 32
	SetConfig          Command = 33
	Renewal            Command = 34
	FormatRindex       Command = 35
	UpdateRindex       Command = 36
	LookupRindex       Command = 37
	CreateResource     Command = 38
	DeleteResource     Command = 39
	RebuildRindex      Command = 40
)

// body is the structure of the body of a request.
type body int

const (
	empty       body = iota
	lockspace        // a lockspace
	resource         // a resource without its disks
	withDisks        // a resource and its disks
	resources        // Data resources without their disks
	acquisition      // Data resources with their disks, and options
	helper           // path and arguments of a program
	disk             // a disk
	value            // a resource without its disks, and a lock value
	event            // a lockspace and an event, not decoded
	rindex           // a resource index, not decoded
	rentry           // a resource index and an entry of it, not decoded
)

var commands = [...]struct {
	name string
	body body
}{
	Register:           {"register", empty},
	AddLockspace:       {"add_lockspace", lockspace},
	RemLockspace:       {"rem_lockspace", lockspace},
	Shutdown:           {"shutdown", empty},
	Status:             {"status", empty},
	LogDump:            {"log_dump", empty},
	Acquire:            {"acquire", acquisition},
	Release:            {"release", resources},
	Inquire:            {"inquire", empty},
	Restrict:           {"restrict", empty},
	RequestResource:    {"request", withDisks},
	Align:              {"align", disk},
	ExamineLockspace:   {"examine_lockspace", lockspace},
	ExamineResource:    {"examine_resource", resource},
	HostStatus:         {"host_status", lockspace},
	InqLockspace:       {"inq_lockspace", lockspace},
	Killpath:           {"killpath", helper},
	WriteLockspace:     {"write_lockspace", lockspace},
	WriteResource:      {"write_resource", withDisks},
	ReadLockspace:      {"read_lockspace", lockspace},
	ReadResource:       {"read_resource", withDisks},
	GetLockspaces:      {"get_lockspaces", empty},
	GetHosts:           {"get_hosts", lockspace},
	ReadResourceOwners: {"read_resource_owners", withDisks},
	SetLVB:             {"set_lvb", value},
	GetLVB:             {"get_lvb", resource},
	Convert:            {"convert", resource},
	Version:            {"version", empty},
	ShutdownWait:       {"shutdown_wait", empty},
	RegEvent:           {"reg_event", event},
	EndEvent:           {"end_event", lockspace},
	SetEvent:           {"set_event", event},
	SetConfig:          {"set_config", lockspace},
	Renewal:            {"renewal", lockspace},
	FormatRindex:       {"format_rindex", rindex},
	UpdateRindex:       {"update_rindex", rentry},
	LookupRindex:       {"lookup_rindex", rentry},
	CreateResource:     {"create_resource", rentry},
	DeleteResource:     {"delete_resource", rentry},
	RebuildRindex:      {"rebuild_rindex", rindex},
}

// known reports whether c is a command of sanlock 3.8.5.
func (c Command) known() bool { return c != 0 && c < Command(len(commands)) }

// String returns the name of the command, such as "add_lockspace".
func (c Command) String() string {
	if !c.known() {
		return fmt.Sprintf("command %d", uint32(c))
	}
	return commands[c].name
}

// Flags of a lockspace or a resource: alignment and sector size.
const (
	Align1M   = 0x10
	Align2M   = 0x20
	Align4M   = 0x40
	Align8M   = 0x80
	Sector512 = 0x100
	Sector4K  = 0x200
)

// Other flags of a resource.
const (
	ResLVER       = 0x1 // Lver is set
	ResNumHosts   = 0x2 // Data32 is the new number of hosts
	ResShared     = 0x4
	ResPersistent = 0x8
)

// Flags of requests, by command.
const (
	AcquireLVB         = 0x1
	AcquireOrphan      = 0x2
	AcquireOrphanOnly  = 0x4
	AcquireOwnerNowait = 0x8

	RelAll    = 0x1
	RelRename = 0x2 // the second resource has the new name of the first
	RelOrphan = 0x4

	ConvertOwnerNowait = 0x8

	RestrictAll     = 0x1
	RestrictSigkill = 0x2
	RestrictSigterm = 0x4

	KillpathPID = 0x1

	LockspaceAdding = 0x1 // in an answer: it is being added

	AddAsync   = 0x1
	RemAsync   = 0x1
	RemUnused  = 0x2
	InqWait    = 0x1
	WriteClear = 0x1
)

// The state of a host, in Host.Flags.
const (
	HostUnknown = 1
	HostFree    = 2
	HostLive    = 3
	HostFail    = 4
	HostDead    = 5
	HostMask    = 0xf
)

// Data of SetConfig.
const (
	ConfigUsed            = 0x1
	ConfigUnused          = 0x2
	ConfigUsedByOrphans   = 0x4
	ConfigUnusedByOrphans = 0x8
)

// State.Type. A lockspace follows the state of one, and a resource with its disks that of one.
const (
	StateDaemon    = 1
	StateClient    = 2
	StateLockspace = 3
	StateResource  = 4
	StateHost      = 5
	StateRenewal   = 6
)
