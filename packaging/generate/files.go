package generate

import "slices"

// file is a file that a program uses.
type file struct {
	Path, Meaning string
	of            func(*page) bool // the commands that use it
}

var (
	// alone are the commands of bakeryctl that never ask bakeryd.
	alone = []string{"check", "dump", "format", "timeline", "disk"}
	// hosts are those that may join the lockspace as a host of their own.
	hosts = []string{"bench", "check", "disk replace", "lock", "probe", "stress"}
	// related has the pages to which the page of a command refers although its text does not name them.
	related = map[string][]string{
		"bakeryctl": {"bakeryctl-exit-codes(7)", "bakeryctl-environment(7)", "bakery-policy(5)", "bakery-lockspace(5)", "flock(1)"},
		"check":     {"bakery-lockspace(5)"},
		"create":    {"bakery-policy(5)"},
		"dump":      {"bakery-lockspace(5)", "bakeryctl-check(1)"},
		"events":    {"bakeryctl-timeline(1)"},
		"format":    {"bakery-lockspace(5)", "bakeryctl-probe(1)"},
		"hold":      {"bakery-policy(5)", "systemd.service(5)"},
		"hosts":     {"bakeryctl-evict(1)", "bakeryctl-status(1)"},
		"lock":      {"bakery-policy(5)"},
		"request":   {"bakery-policy(5)"},
		"status":    {"bakeryctl-hosts(1)", "bakeryctl-locks(1)", "bakeryctl-top(1)"},
		"timeline":  {"bakeryctl-events(1)"},
		"top":       {"bakeryctl-events(1)", "bakeryctl-status(1)"},
	}
)

// files are the files of the commands of bakeryctl; templates/bakeryd.8.md has those of bakeryd.
var files = []file{
	{"/run/bakery/bakeryd.sock", "bakeryd's socket, for root and the group bakery", func(p *page) bool { return !p.is(alone) }},
	{"/run/bakery/UUID-N.lock", "locked while bakeryctl is host N of the lockspace UUID", func(p *page) bool { return p.is(hosts) }},
	{"/var/lib/bakery/UUID-N.joined", "shows that this machine had host id N, which it may take again", func(p *page) bool { return p.is(hosts) }},
	{"/var/lib/bakery/UUID-N.left", "shows that bakeryctl was host N and left cleanly", func(p *page) bool { return p.is(hosts) }},
	{"/var/lib/bakery/UUID-N.events", "the journal of this host, with id N in the lockspace UUID; UUID-N.events.1 has what came before",
		func(p *page) bool { return p.is([]string{"bakeryctl", "events", "timeline"}) }},
	{"/usr/share/doc/bakeryd/guides", "guides: storage, lease and policy, failures, upgrades", func(p *page) bool { return p.Path == "bakeryctl" }},
	{"/usr/share/doc/bakeryd/guides/errors.md", "error messages and exit codes, with remedies", func(p *page) bool { return p.Path == "bakeryctl" }},
}

// files returns the files that a command uses.
func (p *page) files() []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return !f.of(p) })
}
