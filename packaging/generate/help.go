package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// command is the help of a program or of one of its commands.
type command struct {
	words    []string // such as bakeryctl value get
	short    string   // empty for the program itself
	about    []string // lines below no heading
	usage    []string
	examples []string // lines
	exits    []string // lines: a code and its meaning
	flags    []option
	topics   map[string]string // short texts by name
	sections []section         // headings within the text, in order
	below    []*command
}

// section is a part of a text that has a heading.
type section struct {
	title string
	lines []string
}

// option is a line in the list of flags.
type option struct {
	short, long, value string // such as -w, --timeout, TIME; empty if none
	about              string
}

func (c *command) name() string { return strings.Join(c.words, " ") }

// ask runs a program for its help, in an empty environment.
func ask(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// learn reads the help of a program or command, and of all commands below it.
func learn(program, short string, below ...string) (*command, error) {
	text, err := ask(program, append(below, "--help")...)
	if err != nil {
		return nil, err
	}
	c, children, err := parseHelp(text)
	if err != nil {
		return nil, fmt.Errorf("help of %s %s: %w", program, strings.Join(below, " "), err)
	}
	c.words, c.short = append([]string{filepath.Base(program)}, below...), short
	for _, child := range children {
		if child[0] == "help" {
			continue
		}
		sub, err := learn(program, child[1], append(append([]string(nil), below...), child[0])...)
		if err != nil {
			return nil, err
		}
		c.below = append(c.below, sub)
	}
	return c, nil
}

var (
	heading = regexp.MustCompile(`^([A-Z][A-Za-z]*(?: [A-Za-z]+)*):$`)
	inline  = regexp.MustCompile(`^(Signals|Exit codes): (.*)$`)
	ofFlag  = regexp.MustCompile(`^ +(?:(-[a-zA-Z]), )?(--[a-z0-9-]+)(?: (\S+))?(?:   *(.*))?$`)
	ofChild = regexp.MustCompile(`^  (\S+) +(\S.*)$`)
)

// parseHelp parses a help text. It also returns the names and short texts of the commands below.
func parseHelp(text string) (c *command, children [][2]string, err error) {
	c = &command{topics: map[string]string{}}
	var parts []section
	parts = append(parts, section{})
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		last := &parts[len(parts)-1]
		switch m := heading.FindStringSubmatch(line); {
		case m != nil:
			parts = append(parts, section{title: m[1]})
			continue
		case inline.MatchString(line):
			m := inline.FindStringSubmatch(line)
			parts = append(parts, section{m[1], []string{m[2]}})
			continue
		case strings.HasPrefix(line, `Use "`) && strings.HasSuffix(line, `about a command.`):
			continue
		case last.title != "" && !strings.HasPrefix(line, " ") && line != "" && ended(last.lines):
			parts = append(parts, section{lines: []string{line}}) // text below no heading again
			continue
		}
		last.lines = append(last.lines, line)
	}
	for _, p := range parts {
		p.lines = trimBlank(p.lines)
		switch p.title {
		case "":
			if len(c.about) > 0 && len(p.lines) > 0 {
				c.about = append(c.about, "")
			}
			c.about = append(c.about, p.lines...)
		case "Usage":
			for _, line := range p.lines {
				c.usage = append(c.usage, strings.TrimSpace(line))
			}
		case "Examples":
			c.examples = p.lines
		case "Exit codes":
			c.exits = exitLines(p.lines)
		case "Flags":
			for _, line := range p.lines {
				m := ofFlag.FindStringSubmatch(line)
				if n := len(c.flags); m == nil && n > 0 && indent(line) > len("      --") {
					c.flags[n-1].about += " " + strings.TrimSpace(line)
					continue
				}
				if m == nil {
					return nil, nil, fmt.Errorf("%q is not a line of a list of flags", line)
				}
				c.flags = append(c.flags, option{m[1], m[2], m[3], m[4]})
			}
		case "Global Flags": // the program's
		case "Available Commands":
			for _, line := range p.lines {
				m := ofChild.FindStringSubmatch(line)
				if m == nil {
					return nil, nil, fmt.Errorf("%q is not a line of a list of commands", line)
				}
				children = append(children, [2]string{m[1], m[2]})
			}
		case "Additional help topics":
			for _, line := range p.lines {
				if f := strings.Fields(line); len(f) > 2 {
					c.topics[f[1]] = strings.Join(f[2:], " ")
				}
			}
		default:
			c.sections = append(c.sections, p)
		}
	}
	return c, children, nil
}

// ended reports whether a line without indentation ends the section: it does after a blank line in
// an indented section.
func ended(lines []string) bool {
	return len(lines) > 1 && lines[len(lines)-1] == "" && strings.HasPrefix(lines[0], " ")
}

func trimBlank(lines []string) []string {
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

var exitInline = regexp.MustCompile(`(?:^|; )(\d+) `)

// exitLines turns exit codes in a sentence, "0 after leaving; 64 for ...", into the lines of a
// list.
func exitLines(lines []string) []string {
	if len(lines) == 0 || strings.HasPrefix(lines[0], " ") {
		return lines
	}
	text := strings.TrimSuffix(strings.Join(lines, " "), ".")
	var list []string
	at := exitInline.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		list = append(list, "  "+text[m[2]:m[3]]+"  "+text[m[1]:end])
	}
	return list
}
