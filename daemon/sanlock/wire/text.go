package wire

import (
	"errors"
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

// ParseResource parses the text of a resource. LVER may be missing.
func ParseResource(s string) (Resource, error) {
	r, err := parseResource(s)
	if err != nil {
		return Resource{}, fmt.Errorf("parse resource %.100q: %w", s, err)
	}
	return r, nil
}

func parseResource(s string) (Resource, error) {
	parts, err := split(s)
	if err != nil {
		return Resource{}, err
	}
	if len(parts) < 2 || len(parts) == 3 {
		return Resource{}, errors.New("use LOCKSPACE:NAME[:PATH:OFFSET...][:LVER]")
	}
	r := Resource{Lockspace: parts[0], Name: parts[1]}
	if len(r.Lockspace) > NameLen || len(r.Name) > NameLen {
		return r, fmt.Errorf("a name has at most %d bytes", NameLen)
	}
	for parts = parts[2:]; len(parts) > 1; parts = parts[2:] {
		d := Disk{Path: parts[0]}
		if d.Path == "" || len(d.Path) >= PathLen {
			return r, fmt.Errorf("a path has from 1 to %d bytes", PathLen-1)
		}
		if d.Offset, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
			return r, fmt.Errorf("offset: %w", err)
		}
		r.Disks = append(r.Disks, d)
	}
	if len(r.Disks) > MaxDisks {
		return r, fmt.Errorf("%d disks, more than %d", len(r.Disks), MaxDisks)
	}
	r.NumDisks = uint32(len(r.Disks))
	switch {
	case len(parts) == 0:
	case parts[0] == "SH":
		r.Flags = ResShared
	default:
		r.Flags = ResLVER
		if r.Lver, err = strconv.ParseUint(parts[0], 0, 64); err != nil {
			return r, fmt.Errorf("version: %w", err)
		}
	}
	return r, nil
}

// split returns the parts of s between colons, without escapes.
func split(s string) ([]string, error) {
	parts := []string{""}
	for i := 0; i < len(s); i++ {
		last := &parts[len(parts)-1]
		switch c := s[i]; c {
		case ':':
			parts = append(parts, "")
		case '\\':
			if i++; i == len(s) {
				return nil, errors.New("a backslash at the end")
			}
			*last += s[i : i+1]
		default:
			*last += s[i : i+1]
		}
	}
	return parts, nil
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
