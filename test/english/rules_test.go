package english

import "regexp"

// rule forbids a phrase in Go comments, Go strings and the lines of other text files.
type rule struct {
	pattern   *regexp.Regexp
	advice    string   // the replacement
	comments  bool     // only in Go comments
	clause    bool     // not in questions and Markdown headings
	bad, good []string // examples
}

var rules = []rule{
	{
		pattern: regexp.MustCompile(`\b(Who|Whoever|Whom|What|Whatever)\b`), clause: true,
		advice: "start the sentence with its subject, a concrete noun",
		bad:    []string{"Who asks is what the kernel says.", "What is held\nstays held.", "It ends. Whoever waits is next. Why?"},
		good:   []string{"What happens if a host dies?", "The caller is what the kernel says.", "What has\nt.x changed?"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(who|whom|whoever|he|him|himself|nobody|somebody|everybody)\b`), comments: true,
		advice: `name it: "a client", "the host that ...", "the operator"`,
		bad:    []string{"the host who waits", "until he leaves", "Nobody writes it."},
		good:   []string{"the host that waits", "the whole header"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\b(is|are|be|was|were|been)[\s#/]+had\b`),
		advice:  "use acquire, hold or receive, with a subject",
		bad:     []string{"the lock is had by this host", "that can be\n// had"},
		good:    []string{"the lock that it had"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\banew\b`), advice: `use "again" or re-`,
		bad: []string{"format anew"}, good: []string{"reformat", "a new disk"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`), advice: "use repair or fix",
		bad: []string{"until it is mended", "mend it"}, good: []string{"repair, amend, recommend"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\bbeside\b`), advice: `use "next to", "in addition to" or "and"`,
		bad: []string{"a file beside it"}, good: []string{"besides, a file next to it"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\byet[\s#/]+to\b`), advice: `use "not yet"`,
		bad: []string{"a host that is yet to join"}, good: []string{"a host that did not join yet"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\blest\b`), advice: `use "so that ... not"`,
		bad: []string{"lest it dies"}, good: []string{"so that it does not die"},
	},
	{
		pattern: regexp.MustCompile(`(?i)\bso[\s#/]+many\b`), advice: "give the number, or say number of",
		bad: []string{"after so many turns"}, good: []string{"after maxTurns turns"},
	},
}
