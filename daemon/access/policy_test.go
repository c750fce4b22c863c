package access

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// here has the users and groups of the tests.
var here = Names{
	User: func(name string) (int, error) {
		if id, ok := map[string]int{"root": 0, "alice": 1000, "bob": 1001, `CORP\carol`: 2000, "nobody": 65534}[name]; ok {
			return id, nil
		}
		return 0, fmt.Errorf("unknown user %s", name)
	},
	Group: func(name string) (int, error) {
		if id, ok := map[string]int{"ops": 50, "bakery": 60, "nogroup": 65534}[name]; ok {
			return id, nil
		}
		return 0, fmt.Errorf("unknown group %s", name)
	},
}

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse("policy", []byte(text), here)
	require.NoError(t, err)
	return p
}

func TestParseErrors(t *testing.T) {
	const want = "want allow user NAME PATTERN..., or allow group NAME PATTERN..."
	for text, message := range map[string]string{
		"permit user alice x":                                `policy file policy:1: unknown word "permit": ` + want,
		"\n# all\n\nAllow user alice x":                      `policy file policy:4: unknown word "Allow": ` + want,
		"deny user alice x":                                  `policy:1: unknown word "deny": ` + want,
		"allow":                                              `policy:1: "allow" grants nothing: ` + want,
		"allow alice x":                                      `policy:1: unknown word "alice": ` + want,
		"allow user":                                         `policy:1: "allow user" without a name: ` + want,
		"allow user # alice x":                               `policy:1: "allow user" without a name: ` + want,
		"allow user alice":                                   `policy:1: "allow user alice" grants nothing: name the locks after it, or * for all`,
		"allow group ops # *":                                `policy:1: "allow group ops" grants nothing`,
		"allow user alice job-[a-z]":                         `policy:1: "job-[a-z]": there are no sets of characters: write \[ for the character [, ? for any`,
		`allow user alice "nightly backup"`:                  `policy:1: "\"nightly": " does not quote: write \ before a blank, and \" for the character`,
		`allow user alice 'x'`:                               `policy:1: "'x'": ' does not quote`,
		`allow user alice x\n`:                               `policy:1: "x\\n": \ stands before a blank or one of * ? [ \ # " ' only`,
		`allow user alice x\`:                                `policy:1: "x\\": \ stands before a blank`,
		"allow user 4294967295 x":                            `policy:1: user "4294967295": want a name, or a number up to 4294967294`,
		"allow group 99999999999999999 x":                    `policy:1: group "99999999999999999": want a name, or a number`,
		"allow user * x":                                     `policy:1: "*": there are no patterns for a user`,
		"allow user alice a\x00b":                            `policy:1: "\x00b": a control character, which no name has: remove it`,
		"allow user alice \u0085":                            `a control character`,
		"allow user alice caf\xe9":                           `policy:1: "allow user alice caf\xe9": not UTF-8: save it as that`,
		"\ufeffallow user alice x":                           `policy:1: unknown word "\ufeffallow": ` + want,
		"allow user alice " + strings.Repeat("x", 129) + "*": "no lock has so long a name: want at most 128 bytes",
		"allow user alice " + strings.Repeat("é", 65):        "no lock has so long a name",
		strings.Repeat("#\n", MaxSize/2) + "#":               "policy file policy: more than 1048576 bytes: allow groups rather than users",
	} {
		_, err := Parse("policy", []byte(text), here)
		require.ErrorIs(t, err, ErrPolicy, "%.100q", text)
		require.ErrorContains(t, err, message)
		require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "it is one line: %q", err.Error())
		require.Less(t, len(err.Error()), 400)
	}
}

// TestUnknownNames: bakeryd starts although a user was removed, and reports that user.
func TestUnknownNames(t *testing.T) {
	p := parse(t, "allow user alice a\nallow user alcie b\nallow group opps *\n")
	require.Equal(t, 1, p.Lines)
	require.Equal(t, []string{`policy:2: user "alcie": unknown user alcie`, `policy:3: group "opps": unknown group opps`}, p.Unknown)
	require.NotContains(t, p.users, 0, "not root's, by a number that was never set")
}

func TestParse(t *testing.T) {
	p := parse(t, "# who\r\n\r\n  allow\tuser  alice a b*\t# nightly\r\nallow group 50 job#1 c\\ d\nallow user CORP\\carol *\nallow user 00007 x\n")
	require.Empty(t, p.Unknown)
	require.Equal(t, 4, p.Lines)
	require.Len(t, p.users[1000], 2)
	require.True(t, matches(p.groups[50], "job#1"))
	require.True(t, matches(p.groups[50], "c d"))
	require.False(t, matches(p.groups[50], "c"))
	require.Contains(t, p.users, 2000)
	require.Contains(t, p.users, 7)
	for _, nothing := range []string{"", "\n\n", "# only this", " \t \r\n"} {
		require.Zero(t, parse(t, nothing).Lines)
	}
}

// TestExample: the packaged example is the one in packaging/docs/permissions.md, and is valid.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../packaging/policy.example")
	require.NoError(t, err)
	anybody := func(string) (int, error) { return 1000, nil }
	p, err := Parse("policy.example", text, Names{User: anybody, Group: anybody})
	require.NoError(t, err)
	require.NotZero(t, p.Lines)
	guide, err := os.ReadFile("../../packaging/docs/permissions.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(guide), string(text)), "the guide shows another one")
}

func TestPatterns(t *testing.T) {
	long := strings.Repeat("a", layout.MaxLockName)
	for _, c := range []struct {
		pattern  string
		yes, not []string
	}{
		{"backup", []string{"backup"}, []string{"Backup", "backup ", "xbackup", "backups", ""}},
		{"backup-*", []string{"backup-", "backup-1", "backup-a/b c", "backup-*"}, []string{"backup", "my-backup-1", "Backup-1"}},
		{"*", []string{"x", "a/b", "日本", " ", "*", long}, nil},
		{"*/x", []string{"/x", "a/b/x"}, []string{"x", "a/xy"}},
		{"a*b*c", []string{"abc", "aXbXbXc", "abcbc", "abcc"}, []string{"ab", "acb", "abcd"}},
		{"a**", []string{"a", "aa"}, []string{"b"}},
		{"?", []string{"x", "é", "日", "/"}, []string{"", "xy", "e\u0301"}},
		{"*?", []string{"x", "日本"}, []string{""}},
		{`a\*`, []string{"a*"}, []string{"a", "ab", `a\*`}},
		{`\?\[\\\#\"\'\ `, []string{`?[\#"' `}, []string{"x"}},
		{"é", []string{"é"}, []string{"e\u0301", "É"}}, // as encoded
		{"a]", []string{"a]"}, []string{"a"}},
		{"\ufffd", []string{"\ufffd"}, []string{"x"}},
	} {
		p, err := parsePattern(c.pattern)
		require.NoError(t, err, "%q", c.pattern)
		for _, name := range c.yes {
			require.True(t, matches([]pattern{p}, name), "%q has %q", c.pattern, name)
		}
		for _, name := range c.not {
			require.False(t, matches([]pattern{p}, name), "%q has not %q", c.pattern, name)
		}
	}
}

// plainMatch is the specification of matches, for a pattern without \.
func plainMatch(p, name []rune) bool {
	switch {
	case len(p) == 0:
		return len(name) == 0
	case p[0] == '*':
		return plainMatch(p[1:], name) || len(name) > 0 && plainMatch(p, name[1:])
	}
	return len(name) > 0 && (p[0] == '?' || p[0] == name[0]) && plainMatch(p[1:], name[1:])
}

// TestMatchExhaustively compares matches with plainMatch, for all short patterns and names.
func TestMatchExhaustively(t *testing.T) {
	var words func(letters string, n int) []string
	words = func(letters string, n int) []string {
		all := []string{""}
		if n > 0 {
			for _, w := range words(letters, n-1) {
				for _, l := range letters {
					all = append(all, w+string(l))
				}
			}
		}
		return all
	}
	compared := 0
	names := words("a/é", 4)
	for _, text := range words("a/é*?", 4) {
		p, err := parsePattern(text)
		require.NoError(t, err)
		for _, name := range names {
			compared++
			if got := matches([]pattern{p}, name); got != plainMatch([]rune(text), []rune(name)) {
				t.Fatalf("%q, %q: %v", text, name, got)
			}
		}
	}
	require.Greater(t, compared, 50_000)
}

// TestHugePolicy: Decide answers with a policy of maximum size and slow patterns.
func TestHugePolicy(t *testing.T) {
	line := "allow user alice" + strings.Repeat(" *a*a*a*b", 100) + "\n"
	p := parse(t, strings.Repeat(line, MaxSize/len(line)))
	r := Rules{Owner: 999, Policy: p, NobodyUID: -1, NobodyGID: -1}
	name := strings.Repeat("a", layout.MaxLockName)
	require.ErrorIs(t, r.Decide(Caller{UID: 1000, GID: 1000}, Lock, name), api.ErrForbidden)
	require.NoError(t, r.Decide(Caller{UID: 1000, GID: 1000}, Lock, name[3:]+"aaab"))
}

// FuzzParse checks that a policy is parsed or refused in one line, grants nothing to unnamed
// users, and that Escape is exact.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"allow user alice a* b\n", "allow group ops *", "# x\r\nallow user 5 \\ \\#", "allow user alice [", "allow user x \\", "allow\tuser\t1 ?*?"} {
		f.Add([]byte(seed), "a b")
	}
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		p, err := Parse("policy", text, here)
		if err != nil {
			require.ErrorIs(t, err, ErrPolicy)
			require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%q", err.Error())
			return
		}
		stranger := Caller{UID: 70000, GID: 70000, Groups: []int{70001}}
		if !strings.Contains(string(text), "7000") {
			require.Error(t, Rules{Policy: p, NobodyUID: -1, NobodyGID: -1}.Decide(stranger, Lock, name))
		}
		if layout.ValidateLockName(name) == nil {
			p, err := Parse("policy", []byte("allow user 5 "+Escape(name)), here)
			require.NoError(t, err)
			r := Rules{Owner: 999, Policy: p, NobodyUID: -1, NobodyGID: -1}
			require.NoError(t, r.Decide(Caller{UID: 5, GID: 5}, Lock, name))
			var no *Refusal
			if err := r.Decide(Caller{UID: 5, GID: 5}, Lock, name+"x"); !errors.As(err, &no) {
				t.Fatalf("%q has more than its name", name)
			}
		}
	})
}
