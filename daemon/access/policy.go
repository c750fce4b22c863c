package access

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A policy file has lines of words, separated by blanks or tabs:
//
//	allow user NAME|UID PATTERN...
//	allow group NAME|GID PATTERN...
//
// A # that begins a word starts a comment. Each line adds permissions; none removes any.

// MaxSize is the maximum size of a policy file, in bytes. A larger one is invalid.
const MaxSize = 1 << 20

// ErrPolicy is returned when a policy file cannot be used.
var ErrPolicy = errors.New("policy file")

// Fault is the reason why a policy file is not in force. It is an ErrPolicy.
type Fault struct {
	Path string
	Line int // the first invalid line; 0: the file is not usable as a whole
	Err  error
	Read time.Time // when the file was read
}

// Error names the place as PATH:LINE.
func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%v %s: %v", ErrPolicy, f.Path, f.Err)
	}
	return fmt.Sprintf("%v %s:%d: %v", ErrPolicy, f.Path, f.Line, f.Err)
}

// Unwrap returns ErrPolicy and the cause.
func (f *Fault) Unwrap() []error { return []error{ErrPolicy, f.Err} }

// Text returns the fault for use in a sentence: which file is wrong, and why, which may be empty.
func (f *Fault) Text() (what, why string) {
	what = "the policy file " + f.Path
	switch {
	case f.Line != 0:
		return what + " is invalid", fmt.Sprintf("line %d: %v", f.Line, f.Err)
	case errors.Is(f.Err, fs.ErrNotExist):
		return what + " does not exist", ""
	}
	return what + " cannot be used", f.Err.Error()
}

// Past returns the fact of Text for a file that has changed since it was read.
func (f *Fault) Past() string {
	was := "could not be used"
	switch {
	case f.Line != 0:
		was = "was invalid"
	case errors.Is(f.Err, fs.ErrNotExist):
		was = "did not exist"
	}
	return fmt.Sprintf("the policy file %s %s when it was read at %s, and has changed since", f.Path, was, f.Read.Format(time.TimeOnly))
}

// Remedy returns an instruction for the operator.
func (f *Fault) Remedy() string {
	what := "fix that"
	switch {
	case f.Line != 0:
		what = fmt.Sprintf("fix line %d of %s", f.Line, f.Path)
	case errors.Is(f.Err, fs.ErrNotExist):
		what = "create " + f.Path
	}
	return asRoot + what + ", then " + reload
}

// Policy has the locks that users and groups may take.
type Policy struct {
	path          string
	users, groups map[int][]pattern // by number; nil if no file was ever valid
	missing       []missingUser

	// Fault is why the file, as last read, is not this policy; nil if it is.
	Fault *Fault

	// Unknown lists the users and groups that do not exist here, with the place and the reason.
	// Their lines grant nothing. That is no error: bakeryd must also start on a host where a user
	// was removed.
	Unknown []string
	Lines   int // number of lines that grant something
}

// missingUser is a line for a user that did not exist when the file was read.
type missingUser struct {
	line     int
	name     string
	patterns []pattern
}

// Faulty returns the policy while the file has a fault: what p allows, nothing if p is nil.
func (p *Policy) Faulty(f *Fault) *Policy {
	if p == nil {
		return &Policy{path: f.Path, Fault: f}
	}
	former := *p
	former.Fault = f
	return &former
}

// InForce reports whether a valid file was read, now or earlier.
func (p *Policy) InForce() bool { return p.users != nil }

// Names looks up the numbers of users and groups.
type Names struct {
	User, Group func(name string) (id int, err error)
}

// Parse parses a policy file; path is for messages. The first invalid line is a *Fault with its
// place, its fault and the valid form.
func Parse(path string, text []byte, names Names) (*Policy, error) {
	if len(text) > MaxSize {
		return nil, &Fault{Path: path, Err: fmt.Errorf("more than %d bytes: allow groups rather than users, and patterns rather than names", MaxSize)}
	}
	p := &Policy{path: path, users: map[int][]pattern{}, groups: map[int][]pattern{}}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if err := p.add(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), n, names); err != nil {
			return nil, &Fault{Path: path, Line: n, Err: err}
		}
	}
	return p, nil
}

const wanted = "want allow user NAME PATTERN..., or allow group NAME PATTERN..."

func (p *Policy) add(line string, n int, names Names) error {
	if !utf8.ValidString(line) {
		return fmt.Errorf("%q: not UTF-8: save it as that", shorten(line))
	}
	if at := strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }); at >= 0 {
		return fmt.Errorf("%q: a control character, which no name has: remove it", shorten(line[at:]))
	}
	words := split(line)
	switch {
	case len(words) == 0:
		return nil
	case words[0] != "allow":
		return fmt.Errorf("unknown word %q: %s", shorten(words[0]), wanted)
	case len(words) == 1:
		return fmt.Errorf("%q grants nothing: %s", words[0], wanted)
	case words[1] != "user" && words[1] != "group":
		return fmt.Errorf("unknown word %q: %s", shorten(words[1]), wanted)
	case len(words) == 2:
		return fmt.Errorf("%q without a name: %s", strings.Join(words, " "), wanted)
	case len(words) == 3:
		return fmt.Errorf("%q grants nothing: name the locks after it, or * for all", shorten(strings.Join(words, " ")))
	}
	find, all := names.User, p.users
	if words[1] == "group" {
		find, all = names.Group, p.groups
	}
	var patterns []pattern
	for _, w := range words[3:] {
		one, err := parsePattern(w)
		if err != nil {
			return fmt.Errorf("%q: %w", shorten(w), err)
		}
		patterns = append(patterns, one)
	}
	id, err := number(words[2], words[1], find)
	if errors.Is(err, errNumber) {
		return err
	}
	if err != nil {
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s:%d: %s %q: %v", p.path, n, words[1], shorten(words[2]), err))
		if words[1] == "user" {
			p.missing = append(p.missing, missingUser{n, words[2], patterns})
		}
		return nil
	}
	all[id] = append(all[id], patterns...)
	p.Lines++
	return nil
}

// errNumber is returned for a number that no user or group can have.
var errNumber = errors.New("want a name, or a number up to 4294967294")

// number returns the number of a user or group, given by name or number.
func number(word, kind string, find func(string) (int, error)) (int, error) {
	if strings.ContainsAny(word, "*?") {
		return 0, fmt.Errorf("%q: there are no patterns for a %s: %w; the group bakery has all who may use the socket", shorten(word), kind, errNumber)
	}
	if strings.Trim(word, "0123456789") != "" {
		return find(word)
	}
	id, err := strconv.ParseUint(word, 10, 32)
	if err != nil || id == 1<<32-1 {
		return 0, fmt.Errorf("%s %q: %w", kind, shorten(word), errNumber)
	}
	return int(id), nil
}

// split returns a line's words, as they are written.
func split(line string) (words []string) {
	blank := func(b byte) bool { return b == ' ' || b == '\t' }
	for at := 0; at < len(line); {
		if blank(line[at]) {
			at++
			continue
		}
		if line[at] == '#' {
			break
		}
		begin := at
		for ; at < len(line) && !blank(line[at]); at++ {
			if line[at] == '\\' && at+1 < len(line) {
				at++ // together with the next character, even a blank
			}
		}
		words = append(words, line[begin:at])
	}
	return words
}

// shorten returns a text for a message.
func shorten(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
