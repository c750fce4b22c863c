package wire

import "encoding/binary"

// Answer is the answer to a request.
type Answer struct {
	Command           Command
	Flags, Seq, Data2 uint32
	Result            Code
	Version           uint32 // 0 stands for Proto
	Body              []byte
}

// Host is struct sanlk_host.
type Host struct {
	ID, Generation, Timestamp uint64
	IOTimeout, Flags          uint32
}

// State is struct sanlk_state and the text after it.
type State struct {
	Type, Flags, Data32 uint32
	Data64              uint64
	Name, Text          string
}

// Append appends the answer to b. The length in the header is that of the message, except for the
// commands that answer with states or a log: sanlock does not count these.
func (a Answer) Append(b []byte) []byte {
	h := Header{
		Magic: Magic, Version: a.Version, Command: a.Command, Flags: a.Flags,
		Length: HeaderSize, Seq: a.Seq, Data: uint32(a.Result), Data2: a.Data2,
	}
	if h.Version == 0 {
		h.Version = Proto
	}
	switch a.Command {
	case Status, HostStatus, Renewal, LogDump:
	default:
		h.Length += uint32(len(a.Body))
	}
	return append(h.append(b), a.Body...)
}

// Append appends the request to b as libsanlock sends it. It sets Magic, Length, and the Data that
// counts resources.
func (q *Request) Append(b []byte) []byte {
	var body []byte
	for _, r := range q.Resources {
		body = AppendResource(body, r)
		for _, d := range r.Disks {
			body = AppendDisk(body, d)
		}
	}
	h := q.Header
	h.Magic = Magic
	switch commands[q.Command].body {
	case lockspace:
		body = AppendLockspace(body, q.Lockspace)
	case resources:
		h.Data = uint32(len(q.Resources))
	case acquisition:
		h.Data = uint32(len(q.Resources))
		body = appendText(body, q.Owner, NameLen)
		body = append(body, make([]byte, 8)...)
	case helper:
		body = appendText(body, q.KillPath, HelperPathLen)
		body = appendText(body, q.KillArgs, HelperArgsLen)
	case disk:
		body = AppendDisk(body, q.Disk)
	case value:
		body = append(body, q.LVB...)
	case event, rindex, rentry:
		body = append(body, q.Opaque...)
	}
	h.Length = uint32(HeaderSize + len(body))
	switch q.Command {
	case HostStatus, Renewal:
		h.Length = HeaderSize
	case LookupRindex:
		h.Length = HeaderSize + rindexSize + ResourceSize
	}
	return append(h.append(b), body...)
}

func (h Header) append(b []byte) []byte {
	for _, v := range []uint32{h.Magic, h.Version, uint32(h.Command), h.Flags, h.Length, h.Seq, h.Data, h.Data2} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

// AppendDisk appends a disk. A path that is too long is cut.
func AppendDisk(b []byte, d Disk) []byte {
	b = append(appendText(b, d.Path, PathLen-1), 0)
	b = binary.NativeEndian.AppendUint64(b, d.Offset)
	return append(b, make([]byte, 8)...)
}

// AppendResource appends a resource without its disks. A name that is too long is cut.
func AppendResource(b []byte, r Resource) []byte {
	b = appendText(b, r.Lockspace, NameLen)
	b = appendText(b, r.Name, NameLen)
	b = binary.NativeEndian.AppendUint64(b, r.Lver)
	b = binary.NativeEndian.AppendUint64(b, r.Data64)
	b = binary.NativeEndian.AppendUint32(b, r.Data32)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, r.Flags)
	return binary.NativeEndian.AppendUint32(b, r.NumDisks)
}

// AppendLockspace appends a lockspace. A name that is too long is cut.
func AppendLockspace(b []byte, l Lockspace) []byte {
	b = appendText(b, l.Name, NameLen)
	b = binary.NativeEndian.AppendUint64(b, l.HostID)
	b = binary.NativeEndian.AppendUint32(b, l.Flags)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return AppendDisk(b, l.Disk)
}

// AppendHost appends a host.
func AppendHost(b []byte, h Host) []byte {
	b = binary.NativeEndian.AppendUint64(b, h.ID)
	b = binary.NativeEndian.AppendUint64(b, h.Generation)
	b = binary.NativeEndian.AppendUint64(b, h.Timestamp)
	b = binary.NativeEndian.AppendUint32(b, h.IOTimeout)
	return binary.NativeEndian.AppendUint32(b, h.Flags)
}

// AppendState appends a state and its text. Text that does not fit into the client's buffer, of
// MaxStateText bytes, is cut.
func AppendState(b []byte, s State) []byte {
	text := s.Text[:min(len(s.Text), MaxStateText-1)]
	for _, v := range []uint32{s.Type, s.Flags, s.Data32, 0} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint64(b, s.Data64)
	b = appendText(b, s.Name, NameLen)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(text)+1))
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(append(b, text...), 0)
}

// appendText appends a field of n bytes.
func appendText(b []byte, s string, n int) []byte {
	s = s[:min(len(s), n)]
	return append(append(b, s...), make([]byte, n-len(s))...)
}
