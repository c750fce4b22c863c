package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden returns the messages of testdata/golden.txt, by call and direction.
func golden(t testing.TB) map[string][]byte {
	t.Helper()
	file, err := os.ReadFile("testdata/golden.txt")
	require.NoError(t, err)
	all := map[string][]byte{}
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		call, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		direction, rest, _ := strings.Cut(rest, " ")
		require.NotContains(t, all, call+direction)
		all[call+direction] = decodeGolden(t, rest)
	}
	return all
}

func decodeGolden(t testing.TB, rest string) (b []byte) {
	t.Helper()
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		if text, err := strconv.QuotedPrefix(rest); err == nil {
			rest = rest[len(text):]
			text, err = strconv.Unquote(text)
			require.NoError(t, err)
			b = append(b, text...)
			continue
		}
		token, after, _ := strings.Cut(rest, " ")
		rest = after
		if zeros, ok := strings.CutSuffix(token, "*0"); ok {
			n, err := strconv.Atoi(zeros)
			require.NoError(t, err)
			b = append(b, make([]byte, n)...)
			continue
		}
		part, err := hex.DecodeString(token)
		require.NoError(t, err)
		b = append(b, part...)
	}
	return b
}

// requireBytes reports where two messages differ.
func requireBytes(t *testing.T, want, got []byte, call string) {
	t.Helper()
	n := 0
	for n < min(len(want), len(got)) && want[n] == got[n] {
		n++
	}
	require.True(t, bytes.Equal(want, got), "%s: difference at byte %d, lengths %d and %d", call, n, len(want), len(got))
}

// The places and names of the recorded calls.
const (
	path1  = "/tmp/rec/disk:1"
	path2  = "/tmp/rec/disk2"
	full   = "name-of-forty-eight-bytes-which-fills-the-field!"
	mib    = 1 << 20
	format = Align1M | Sector512
)

func space(offset uint64) Lockspace {
	return Lockspace{Name: "LS", HostID: 3, Flags: format, Disk: Disk{path1, offset}}
}

// res returns a resource without disks, as for a command that sends none.
func res(name string, flags uint32) Resource {
	return Resource{Lockspace: "LS", Name: name, Flags: flags, NumDisks: 1}
}

func onDisk(name string, offset uint64, flags uint32) Resource {
	r := res(name, flags)
	r.Disks = []Disk{{path1, offset}}
	return r
}

func onTwoDisks(name string, offset uint64, flags uint32) Resource {
	r := onDisk(name, offset, flags)
	r.Disks = append(r.Disks, Disk{path2, offset})
	r.NumDisks = 2
	return r
}

// req returns a request of the kind that a command has, with what the parts set.
func req(c Command, flags, data, data2 uint32, parts ...any) *Request {
	q := &Request{Header: Header{Magic: Magic, Version: Proto, Command: c, Flags: flags, Data: data, Data2: data2}}
	for _, part := range parts {
		switch part := part.(type) {
		case Lockspace:
			q.Lockspace = part
		case Resource:
			q.Resources = append(q.Resources, part)
		case Disk:
			q.Disk = part
		case []byte:
			q.LVB = part
		case string:
			q.Owner = part
		default:
			panic("unknown part")
		}
	}
	return q
}

func goldenRequests() map[string]*Request {
	requested := onDisk("A", mib, ResLVER)
	requested.Lver = 9
	killpath := req(Killpath, KillpathPID, 0, Self)
	killpath.KillPath, killpath.KillArgs = "/usr/bin/env", "-i sh"
	return map[string]*Request{
		"version":                req(Version, 0, 0, 0),
		"register":               req(Register, 0, 0, 0),
		"restrict":               req(Restrict, RestrictSigkill, 0, Self),
		"killpath":               killpath,
		"align":                  req(Align, 0, 0, 0, Disk{path1, mib}),
		"write_lockspace":        req(WriteLockspace, 0, 0, 2, space(0)),
		"read_lockspace":         req(ReadLockspace, 0, 0, 0, Lockspace{Disk: Disk{Path: path1}}),
		"read_lockspace_missing": req(ReadLockspace, 0, 0, 0, space(40*mib)),
		"add_lockspace":          req(AddLockspace, 0, 2, 0, space(0)),
		"add_lockspace_again":    req(AddLockspace, AddAsync, 0, 0, space(0)),
		"inq_lockspace":          req(InqLockspace, InqWait, 0, 0, space(0)),
		"rem_lockspace":          req(RemLockspace, RemUnused, 0, 0, space(0)),
		"get_lockspaces":         req(GetLockspaces, 0, 0, 0),
		"get_hosts":              req(GetHosts, 0, 0, 0, Lockspace{Name: "LS"}),
		"get_hosts_unknown":      req(GetHosts, 0, 0, 0, Lockspace{Name: "none", HostID: 7}),
		"set_config":             req(SetConfig, 0, ConfigUsedByOrphans, 0, Lockspace{Name: "LS"}),
		"write_resource":         req(WriteResource, 0, 0, 0, onDisk("A", mib, format)),
		"write_resource_two":     req(WriteResource, 0, 100, 50, onDisk(full, 2*mib, format)),
		"write_resource_clear":   req(WriteResource, WriteClear, 0, 0, onTwoDisks("C", 3*mib, format)),
		"read_resource":          req(ReadResource, 0, 0, 0, Resource{NumDisks: 1, Disks: []Disk{{path1, mib}}}),
		"read_resource_missing":  req(ReadResource, 0, 0, 0, onDisk("A", 41*mib, 0)),
		"read_resource_owners":   req(ReadResourceOwners, 0, 0, 0, onDisk("A", mib, 0)),
		"acquire": req(Acquire, AcquireLVB|AcquireOwnerNowait, 2, Self,
			onDisk("A", mib, 0), onDisk(full, 2*mib, ResShared|ResPersistent), "owner"),
		"acquire_unregistered": req(Acquire, 0, 1, 1, onTwoDisks("A", mib, 0)),
		"inquire":              req(Inquire, 0, 0, Self),
		"inquire_empty":        req(Inquire, 0, 0, Self),
		"convert":              req(Convert, ConvertOwnerNowait, 0, Self, res("A", ResShared)),
		"convert_back":         req(Convert, 0, 0, Self, res("A", 0)),
		"set_lvb":              req(SetLVB, 0, 0, 0, res("A", 0), []byte("value\x00")),
		"get_lvb":              req(GetLVB, 0, 0, 0, res("A", 0)),
		"release_rename":       req(Release, RelRename, 2, Self, res("A", 0), res("B", 0)),
		"release_unknown":      req(Release, 0, 1, Self, res("A", 0)),
		"release_orphan":       req(Release, RelOrphan, 1, Self, Resource{Lockspace: "LS"}),
		"release_all":          req(Release, RelAll, 0, Self),
		"request":              req(RequestResource, 0, 2, 0, requested),
		"request_next":         req(RequestResource, 1, 1, 0, onDisk("none", 42*mib, 0)),
		"examine_resource":     req(ExamineResource, 0, 0, 0, res("A", 0)),
		"examine_lockspace":    req(ExamineLockspace, 0, 0, 0, space(0)),
		"end_event":            req(EndEvent, 0, 0, 0, Lockspace{Name: "LS"}),
		"status":               req(Status, 0, 0, 0),
		"host_status":          req(HostStatus, 0, 0, 0, Lockspace{Name: "LS"}),
		"renewal":              req(Renewal, 0, 0, 0, Lockspace{Name: "LS"}),
		"log_dump":             req(LogDump, 0, 0, 0),
		"shutdown":             req(Shutdown, 0, 0, 0),
		"shutdown_wait":        req(ShutdownWait, 0, 0, 0),
	}
}

// opaque has the recorded requests whose bodies the package does not decode, and their headers.
var opaque = map[string]*Request{
	"reg_event":       req(RegEvent, 0, 0, 0),
	"set_event":       req(SetEvent, 1, 0, 0),
	"format_rindex":   req(FormatRindex, 0, 0, 0),
	"create_resource": req(CreateResource, 0, 0, 0),
	"lookup_rindex":   req(LookupRindex, 0, 0, 0),
	"delete_resource": req(DeleteResource, 0, 0, 0),
	"update_rindex":   req(UpdateRindex, 0x10000, 0, 0),
	"rebuild_rindex":  req(RebuildRindex, 0, 0, 0),
}

func TestRequest_AsRecorded_IsDecodedAndEncoded(t *testing.T) {
	all, want, seen := golden(t), goldenRequests(), map[Command]bool{}
	for call, q := range opaque {
		q.Opaque = all[call+">"][HeaderSize:]
		want[call] = q
	}
	for call, q := range want {
		message := all[call+">"]
		require.NotEmpty(t, message, call)
		in := bytes.NewReader(message)
		got, err := Read(in)
		require.NoError(t, err, call)
		require.Zero(t, in.Len(), call)
		q.Length = got.Length
		require.Equal(t, q, got, call)
		requireBytes(t, message, q.Append(nil), call)
		seen[q.Command] = true
		delete(all, call+">")
	}
	for key := range all {
		require.True(t, strings.HasSuffix(key, "<"), key)
	}
	for c := Register; c.known(); c++ {
		require.True(t, seen[c], c)
	}
}

// goldenBodies returns the recorded calls with a result other than 0, data, or a body.
func goldenBodies(t *testing.T) map[string]Answer {
	space1 := space(0)
	space1.HostID = 1
	listed := space(0)
	listed.Flags = 0
	shared := onDisk(full, 2*mib, ResShared|ResPersistent)
	held := onDisk("A", mib, 0)
	held.Lver = 1
	inquiry, err := Inquiry([]Resource{held, shared})
	require.NoError(t, err)
	host := AppendHost(nil, Host{ID: 3, Generation: 1, Timestamp: 35655, IOTimeout: 2, Flags: HostLive})
	owner := AppendHost(AppendResource(nil, held), Host{ID: 3, Generation: 1, Timestamp: 35662})
	entry := func(name string, offset byte) []byte {
		return append(appendText(nil, name, NameLen), 0, 0, offset, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	return map[string]Answer{
		"version":                {Data2: 0x03080500},
		"align":                  {Result: mib},
		"read_lockspace":         {Data2: 2, Body: AppendLockspace(nil, space1)},
		"read_lockspace_missing": {Result: LeaderMagic, Body: AppendLockspace(nil, space(40*mib))},
		"add_lockspace_again":    {Result: Errno(syscall.EEXIST)},
		"get_lockspaces":         {Data2: 1, Body: AppendLockspace(nil, listed)},
		"get_hosts":              {Data2: 1, Body: host},
		"get_hosts_unknown":      {Result: Errno(syscall.ENOENT)},
		"read_resource":          {Body: AppendResource(nil, res("A", format))},
		"read_resource_missing":  {Result: LeaderMagic, Body: AppendResource(nil, res("A", 0))},
		"acquire_unregistered":   {Result: Errno(syscall.ESRCH)},
		"inquire":                {Data2: 2, Body: inquiry},
		"read_resource_owners":   {Data2: 1, Body: owner},
		"get_lvb":                {Body: append([]byte("value"), make([]byte, 507)...)},
		"request_next":           {Result: LeaderMagic},
		"release_unknown":        {Result: -1},
		"create_resource":        {Body: entry("", 0xa0)},
		"lookup_rindex":          {Body: entry("Y", 0xa0)},
		"delete_resource":        {Body: entry("", 0)},
		"update_rindex":          {Body: entry("Y", 0xc0)},
	}
}

func TestAnswer_AsRecorded_IsEncoded(t *testing.T) {
	all, want, states := golden(t), goldenBodies(t), goldenStates()
	for key, message := range all {
		call, ok := strings.CutSuffix(key, "<")
		if !ok {
			continue
		}
		if _, ok := states[call]; ok {
			continue
		}
		q, err := Read(bytes.NewReader(all[call+">"]))
		require.NoError(t, err, call)
		a := answerTo(q.Header, want[call].Result)
		a.Data2, a.Body = want[call].Data2, want[call].Body
		if call == "shutdown_wait" {
			a.Command = 0 // the daemon has forgotten the request by then
		}
		requireBytes(t, message, a.Append(nil), call)
		delete(want, call)
	}
	require.Empty(t, want)
}

func goldenStates() map[string][]State {
	host := "f2ff108a-87fd-4c39-9a0d-8cfd727f6611.vm"
	none := ^uint32(0)
	return map[string][]State{
		"status": {
			{Type: StateDaemon, Name: host, Text: "our_host_name="},
			{Type: StateClient, Data32: none, Name: "helper", Text: "ci=0 "},
			{Type: StateClient, Data32: none, Name: "listener", Text: "ci=1 "},
			{Type: StateClient, Data32: 4857, Name: "owner", Text: "ci=2 "},
			{Type: StateClient, Data32: none, Name: "status", Text: "ci=3 "},
			{Type: StateLockspace, Data64: 3, Name: "LS", Text: "list=spaces "},
			{Type: StateResource, Data32: 4857, Data64: 1, Name: full, Text: "list=held flags=1 "},
			{Type: StateResource, Data32: 4857, Data64: 1, Name: "A", Text: "list=held flags=28 "},
		},
		"host_status": {{Type: StateHost, Data32: 3, Data64: 35655, Text: "last_check="}},
		"renewal": {
			{Type: StateRenewal, Data64: 35655, Text: "timestamp=35655 "},
			{Type: StateRenewal, Data64: 35659, Text: "timestamp=35659 "},
			{Type: StateRenewal, Data64: 35664, Text: "timestamp=35664 "},
		},
	}
}

func TestStates_AsRecorded_AreEncoded(t *testing.T) {
	listed := space(0)
	listed.Flags = 0
	shared, held := onDisk(full, 2*mib, ResShared), onDisk("A", mib, 0)
	resources := map[string]Resource{full: shared, "A": held}
	for call, states := range goldenStates() {
		message := golden(t)[call+"<"]
		q, err := Read(bytes.NewReader(golden(t)[call+">"]))
		require.NoError(t, err)
		a := answerTo(q.Header, OK)
		if call == "renewal" {
			a.Data2 = 2
		}
		for _, s := range states {
			// The text is the recorded one, if it begins like that of the table.
			at := HeaderSize + len(a.Body) + StateSize
			require.Greater(t, len(message), at, call)
			text, _, _ := bytes.Cut(message[at:], []byte{0})
			require.True(t, strings.HasPrefix(string(text), s.Text), "%s", text)
			s.Text = string(text)
			a.Body = AppendState(a.Body, s)
			switch s.Type {
			case StateLockspace:
				a.Body = AppendLockspace(a.Body, listed)
			case StateResource:
				r := resources[s.Name]
				a.Body = AppendDisk(AppendResource(a.Body, r), r.Disks[0])
			}
		}
		requireBytes(t, message, a.Append(nil), call)
	}
}

// answerTo returns an answer to the request with a header, without a body.
func answerTo(h Header, result Code) Answer {
	return Answer{Command: h.Command, Flags: h.Flags, Seq: h.Seq, Result: result}
}
