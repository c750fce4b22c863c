package main

import (
	"regexp"
	"strings"
)

// programs is the help of bakeryd and bakeryctl.
type programs struct {
	bakeryd, bakeryctl     *command
	exitCodes, environment *command // topics of bakeryctl's help
}

// release is the version and date in every page.
type release struct {
	version string
	date    string // YYYY-MM-DD
}

const manual = "Locks on a shared disk"

// files are the files of both programs.
var files = [][2]string{
	{"/etc/bakery/bakeryd.env", "environment of the service bakeryd; bakeryd(8) lists the variables"},
	{"/etc/bakery/NAME.env", "environment of the service bakeryd@NAME, on a host with several lockspaces"},
	{"/etc/bakery/policy", "which users may take which locks, if --policy-file of bakeryd names it; an example is in /usr/share/doc/bakeryd/examples"},
	{"/run/bakery/bakeryd.sock", "bakeryd's socket, for root and the group bakery"},
	{"/run/bakery/UUID.state", "state with which a restarted bakeryd continues; UUID is the lockspace's"},
	{"/var/lib/bakery/UUID-N.events", "the journal of this host, with id N: see bakeryctl events"},
	{"/var/lib/bakery/UUID-N.joined", "shows that this machine had host id N, which it may take again even if the host record is damaged"},
	{"/var/lib/bakery/UUID-N.left", "shows that this host had id N and left cleanly"},
	{"/usr/share/doc/bakeryd/guides", "guides: storage, lease and policy, failures, upgrades"},
}

// bakerydPage returns bakeryd(8).
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
	m.text("Each variable sets a flag that is not given on the command line. Empty variables are ignored.")
	for _, f := range settings(d) {
		m.item(`\fB`+literal(variable(f))+`\fR`, "--"+strings.TrimPrefix(f.long, "--")+": "+f.about)
	}
	m.item(`\fBNOTIFY_SOCKET\fR`, "where systemd listens: see sd_notify(3).")
	m.item(`\fBJOURNAL_STREAM\fR`, "set by systemd if the log goes to its journal: see --log-format.")
	m.item(`\fBXDG_RUNTIME_DIR\fR, \fBXDG_STATE_HOME\fR`,
		"for other users than root the defaults of --runtime-dir and --state-dir are the directories bakery below these.")
	m.files()
	m.section("Exit status")
	m.list(unindent(d.exits))
	m.section("Examples")
	m.block(d.examples)
	m.paragraph()
	m.text("As a service, with the device in /etc/bakery/bakeryd.env:")
	m.block([]string{"systemctl enable --now bakeryd", "journalctl -u bakeryd", "systemctl restart bakeryd    # holds stay"})
	m.seeAlso("bakeryctl(8)", "bakery-lockspace(5)", "systemd.service(5)", "flock(1)")
	return m.String()
}

// bakeryctlPage returns bakeryctl(8), with all commands.
func bakeryctlPage(p programs, r release) string {
	c := p.bakeryctl
	m := newPage("bakeryctl", 8, r.date, r.version, manual)
	m.section("Name")
	m.WriteString("bakeryctl \\- runs commands under locks on a shared disk, and inspects the disk\n")
	m.section("Synopsis")
	all := leaves(c)
	for _, sub := range all {
		m.usage(sub)
	}
	m.section("Description")
	m.prose(c.about)
	m.paragraph()
	m.text("Locks come from bakeryd(8), or with --device from the command itself. Hosts that run bakeryd(8) on one device share their " +
		"locks. The --help of each command has the same text as this page. To begin with:")
	m.block(c.examples)
	m.section("Options")
	m.text("They may stand before or after the command.")
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
		{"On all of them, every night; one host makes the backup:", "bakeryctl lock -n -E 0 nightly-backup -- /usr/local/bin/backup"},
		{"Holders and waiters now, and holders at night:", "bakeryctl status\nbakeryctl events --since 03:00 --until 03:30 nightly-backup"},
		{"Check the disk and the hosts:", "bakeryctl check /dev/mapper/locks && bakeryctl hosts"},
	} {
		if i > 0 {
			m.paragraph()
		}
		m.text(e[0])
		m.block(strings.Split(e[1], "\n"))
	}
	m.paragraph()
	m.text("Each command above has more examples.")
	m.seeAlso("bakeryd(8)", "bakery-lockspace(5)", "flock(1)", "systemd.service(5)")
	return m.String()
}

// leaves returns the commands without subcommands, in order.
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

// settings returns the flags that have a variable.
func settings(bakeryd *command) (all []option) {
	for _, f := range bakeryd.flags {
		if f.long != "--help" && f.long != "--version" {
			all = append(all, f)
		}
	}
	return all
}

// variable returns the name of a flag's variable.
func variable(f option) string {
	return "BAKERYD_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(f.long, "--"), "-", "_"))
}

var placeholder = regexp.MustCompile(`[A-Z][A-Z|]+|flags`)

// usage writes the synopsis of a command.
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
