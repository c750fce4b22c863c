package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

var escapes = strings.NewReplacer(`\`, `\\`, ":", `\:`, " ", `\ `)

func (d Disk) String() string {
	return escapes.Replace(d.Path) + ":" + strconv.FormatUint(d.Offset, 10)
}

// String returns NAME:HOSTID:PATH:OFFSET.
func (l Lockspace) String() string {
	return fmt.Sprintf("%s:%d:%v", escapes.Replace(l.Name), l.HostID, l.Disk)
}

// String returns LOCKSPACE:NAME:PATH:OFFSET:LVER with all disks. If the resource is shared, SH
// stands for LVER. A backslash precedes each colon, space and backslash of a name or path. Sanlock
// writes it only before a colon or space of a path, so that its clients lose other special bytes.
func (r Resource) String() string {
	var b strings.Builder
	b.WriteString(escapes.Replace(r.Lockspace) + ":" + escapes.Replace(r.Name))
	for _, d := range r.Disks {
		b.WriteString(":" + d.String())
	}
	if r.Flags&ResShared != 0 {
		return b.String() + ":SH"
	}
	return b.String() + ":" + strconv.FormatUint(r.Lver, 10)
}

// Inquiry returns the body of the answer to Inquire: the text of each resource, separated by
// spaces. If a text exceeds the buffer of the client, it fails with the code of sanlock.
func Inquiry(rs []Resource) ([]byte, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.String()
		if len(texts[i]) >= MaxResourceText {
			return nil, Errno(syscall.ELIBACC)
		}
	}
	return append([]byte(strings.Join(texts, " ")), 0), nil
}

// IsUTF8 reports whether the names, paths and arguments of a request are UTF-8. The name of the owner need not be.
func (q *Request) IsUTF8() bool {
	all := []string{q.Lockspace.Name, q.Lockspace.Disk.Path, q.KillPath, q.KillArgs, q.Disk.Path}
	for _, r := range q.Resources {
		all = append(all, r.Lockspace, r.Name)
		for _, d := range r.Disks {
			all = append(all, d.Path)
		}
	}
	return !slices.ContainsFunc(all, func(text string) bool { return !utf8.ValidString(text) })
}
