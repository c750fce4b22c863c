package access

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A policy file has lines of words, with blanks or tabs between them:
//
//	allow user NAME|UID PATTERN...
//	allow group NAME|GID PATTERN...
//
// What is after a # that begins a word is a comment. Each line adds to the others; nothing takes anything away.

// MaxSize is how long a policy file may be, in bytes: what is longer is none.
const MaxSize = 1 << 20

// ErrPolicy is returned when a policy file cannot be used.
var ErrPolicy = errors.New("policy file")

// Policy says who may take which locks.
type Policy struct {
	path          string
	users, groups map[int][]pattern // by their numbers

	// Unknown are the users and groups that are not known here, so that their lines allow nothing: why, and where.
	// That is no error: bakeryd has to start on a host where a user was removed, too.
	Unknown []string
	Lines   int // that allow something to somebody
}

// Nothing is the policy of a file that is empty.
func Nothing(path string) *Policy { return &Policy{path: path} }

// Names finds the numbers of users and groups.
type Names struct {
	User, Group func(name string) (id int, err error)
}

// Parse reads a policy file; path is for messages. The first line that is wrong is an ErrPolicy, which says where it is,
// what is wrong, and what would be right.
func Parse(path string, text []byte, names Names) (*Policy, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%w %s: more than %d bytes: allow groups rather than users, and patterns rather than names",
			ErrPolicy, path, MaxSize)
	}
	p := &Policy{path: path, users: map[int][]pattern{}, groups: map[int][]pattern{}}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if err := p.add(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), n, names); err != nil {
			return nil, fmt.Errorf("%w %s:%d: %w", ErrPolicy, path, n, err)
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
	if len(words) == 0 {
		return nil
	}
	if words[0] != "allow" {
		return fmt.Errorf("%q: %s", shorten(words[0]), wanted)
	}
	var find func(string) (int, error)
	var all map[int][]pattern
	switch {
	case len(words) < 2:
		return fmt.Errorf("%q allows nothing to nobody: %s", words[0], wanted)
	case words[1] == "user":
		find, all = names.User, p.users
	case words[1] == "group":
		find, all = names.Group, p.groups
	default:
		return fmt.Errorf("%q: %s", shorten(words[1]), wanted)
	}
	switch len(words) {
	case 2:
		return fmt.Errorf("%q without a name: %s", strings.Join(words, " "), wanted)
	case 3:
		return fmt.Errorf("%q allows nothing: name the locks behind it, or * for all", shorten(strings.Join(words, " ")))
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
		return nil
	}
	all[id] = append(all[id], patterns...)
	p.Lines++
	return nil
}

// errNumber is returned for a number that is none of a user or group.
var errNumber = errors.New("want a name, or a number up to 4294967294")

// number is the number of a user or group, which may be given instead of the name.
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

// split is a line's words, as they are written.
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
				at++ // with what is behind it, a blank too
			}
		}
		words = append(words, line[begin:at])
	}
	return words
}

// shorten is a text for a message.
func shorten(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
