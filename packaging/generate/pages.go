package main

import (
	"regexp"
	"strings"
)

// programs are what bakeryd and bakeryctl say of themselves.
type programs struct {
	bakeryd, bakeryctl     *command
	exitCodes, environment *command // topics of bakeryctl's help
}

// release is what every page bears.
type release struct {
	version string
	date    string // YYYY-MM-DD
}

const manual = "Locks on a shared disk"

// files are what both programs use, and who cares to know.
var files = [][2]string{
	{"/etc/bakery/bakeryd.env", "settings of bakeryd as a service: its variables, which are listed in bakeryd(8)"},
	{"/etc/bakery/NAME.env", "likewise, of bakeryd@NAME.service, where a host has several lockspaces"},
	{"/etc/bakery/policy", "who may take which locks, where --policy-file of bakeryd says so; an example is in /usr/share/doc/bakeryd/examples"},
	{"/run/bakery/bakeryd.sock", "where bakeryd is asked; for root and the group bakery"},
	{"/run/bakery/UUID.state", "what a bakeryd that is started again goes on with; UUID is that of the lockspace"},
	{"/var/lib/bakery/UUID-N.events", "the journal of this host, N being its id: see bakeryctl events"},
	{"/var/lib/bakery/UUID-N.joined", "that this machine had host id N: it may take it again though its record is damaged"},
	{"/var/lib/bakery/UUID-N.left", "which id this host had, and that it has left in order"},
	{"/usr/share/doc/bakeryd/guides", "guides: which disk, which lease, what to do when something fails, upgrades"},
}

// bakerydPage is bakeryd(8).
func bakerydPage(p programs, r release) string {
	d := p.bakeryd
	m := newPage("bakeryd", 8, r.date, r.version, manual)
	m.section("Name")
	m.WriteString("bakeryd \\- serves locks to hosts that share nothing but a disk\n")
	m.section("Synopsis")
	m.usage(d)
	m.section("Description")
	m.prose(d.about)
	for _, s := range d.sections {
		m.section(s.title)
		m.prose(s.lines)
	}
	m.section("Options")
	m.flags(d.flags)
	m.section("Environment")
	m.text("Each of these stands for a flag that is not given on the command line. Empty ones count for nothing.")
	for _, f := range settings(d) {
		m.item(`\fB`+literal(variable(f))+`\fR`, "--"+strings.TrimPrefix(f.long, "--")+": "+f.about)
	}
	m.item(`\fBNOTIFY_SOCKET\fR`, "where systemd listens: see sd_notify(3).")
	m.item(`\fBJOURNAL_STREAM\fR`, "set by systemd where the log goes to its journal: see --log-format.")
	m.item(`\fBXDG_RUNTIME_DIR\fR, \fBXDG_STATE_HOME\fR`,
		"not as root: below these, in bakery, is what root has in /run/bakery and /var/lib/bakery, unless --runtime-dir and --state-dir say where.")
	m.files()
	m.section("Exit status")
	m.list(unindent(d.exits))
	m.section("Examples")
	m.block(d.examples)
	m.paragraph()
	m.text("As a service, with the device in /etc/bakery/bakeryd.env:")
	m.block([]string{"systemctl enable --now bakeryd", "journalctl -u bakeryd", "systemctl restart bakeryd    # what is held stays held"})
	m.seeAlso("bakeryctl(8)", "bakery-lockspace(5)", "systemd.service(5)", "flock(1)")
	return m.String()
}

// bakeryctlPage is bakeryctl(8), with all commands.
func bakeryctlPage(p programs, r release) string {
	c := p.bakeryctl
	m := newPage("bakeryctl", 8, r.date, r.version, manual)
	m.section("Name")
	m.WriteString("bakeryctl \\- runs commands under locks on a shared disk, and looks at the disk\n")
	m.section("Synopsis")
	all := leaves(c)
	for _, sub := range all {
		m.usage(sub)
	}
	m.section("Description")
	m.prose(c.about)
	m.paragraph()
	m.text("Locks are taken from bakeryd(8), or with --device by the command itself. Hosts that run bakeryd(8) on one device have them in " +
		"common. Every command has a --help of its own, which says the same as this page. To begin with:")
	m.block(c.examples)
	m.section("Options")
	m.text("These come before the command or behind it.")
	m.flags(c.flags)
	m.section("Commands")
	for _, sub := range all {
		m.subsection(sub.name())
		if len(sub.about) > 0 {
			m.prose(sub.about)
		} else {
			m.text(sub.short)
		}
		for _, s := range sub.sections {
			m.paragraph()
			m.text(s.title + ":")
			m.prose(s.lines)
		}
		m.flags(sub.flags)
		if len(sub.exits) > 0 {
			m.paragraph()
			m.text("Exit codes:")
			m.list(unindent(sub.exits))
		}
		if len(sub.examples) > 0 {
			m.paragraph()
			m.text("Examples:")
			m.block(sub.examples)
		}
	}
	m.section("Environment")
	for _, s := range p.environment.sections {
		if s.title != "Environment" {
			m.paragraph()
			m.text(s.title + ":")
		}
		m.prose(s.lines)
	}
	m.files()
	m.section("Exit status")
	m.list(unindent(p.exitCodes.exits))
	m.section("Examples")
	for i, e := range [][2]string{
		{"Three hosts share a disk; once, on one of them:", "bakeryctl probe /dev/mapper/locks\nbakeryctl format /dev/mapper/locks --hosts 16"},
		{"On all of them, every night, and one does it:", "bakeryctl lock -n -E 0 nightly-backup -- /usr/local/bin/backup"},
		{"Who has it, who waits, and who had it at night:", "bakeryctl status\nbakeryctl events --since 03:00 --until 03:30 nightly-backup"},
		{"Is the disk in order, and are the hosts?", "bakeryctl check /dev/mapper/locks && bakeryctl hosts"},
	} {
		if i > 0 {
			m.paragraph()
		}
		m.text(e[0])
		m.block(strings.Split(e[1], "\n"))
	}
	m.paragraph()
	m.text("Each command above has more.")
	m.seeAlso("bakeryd(8)", "bakery-lockspace(5)", "flock(1)", "systemd.service(5)")
	return m.String()
}

// leaves are the commands that do something, in their order.
func leaves(c *command) (all []*command) {
	for _, sub := range c.below {
		if len(sub.below) > 0 {
			all = append(all, leaves(sub)...)
		} else {
			all = append(all, sub)
		}
	}
	return all
}

// settings are the flags that have a variable.
func settings(bakeryd *command) (all []option) {
	for _, f := range bakeryd.flags {
		if f.long != "--help" && f.long != "--version" {
			all = append(all, f)
		}
	}
	return all
}

// variable is that of a flag of bakeryd.
func variable(f option) string {
	return "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(f.long, "--"), "-", "_"))
}

var placeholder = regexp.MustCompile(`[A-Z][A-Z|]+|flags`)

// usage writes the lines of the synopsis.
func (p *page) usage(c *command) {
	for _, line := range c.usage {
		p.paragraph()
		rest, ok := strings.CutPrefix(line, c.name())
		if !ok {
			rest = " " + line
		}
		p.WriteString(`\fB` + literal(c.name()) + `\fR` + placeholder.ReplaceAllString(literal(rest), `\fI$0\fR`) + "\n")
	}
}

func (p *page) flags(list []option) {
	for _, f := range list {
		term := `\fB` + literal(f.long) + `\fR`
		if f.short != "" {
			term = `\fB` + literal(f.short) + `\fR, ` + term
		}
		if f.value != "" {
			term += ` \fI` + literal(f.value) + `\fR`
		}
		p.item(term, f.about)
	}
}

func (p *page) files() {
	p.section("Files")
	for _, f := range files {
		p.item(`\fI`+literal(f[0])+`\fR`, f[1])
	}
}

func (p *page) seeAlso(pages ...string) {
	p.section("See also")
	for i, name := range pages {
		if i+1 < len(pages) {
			name += ","
		}
		p.text(name)
	}
	p.paragraph()
	p.text("The guides in /usr/share/doc/bakeryd/guides, and")
	p.WriteString(".UR https://github.com/bakeryd/bakeryd\nthe pages of the project\n.UE .\n")
}
