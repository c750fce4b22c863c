package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// command is what a program says of one of its commands, or of itself.
type command struct {
	words    []string // bakeryctl value get
	short    string   // empty: the program itself
	about    []string // lines: all that stands below no heading
	usage    []string
	examples []string // lines
	exits    []string // lines: a code, and what it means
	flags    []option
	topics   map[string]string // their short text, by name
	sections []section         // headings of the text itself, in their order
	below    []*command
}

// section is a part of a text that has a heading of its own.
type section struct {
	title string
	lines []string
}

// option is a line of the list of flags.
type option struct {
	short, long, value string // -w, --timeout, TIME; empty: none
	about              string
}

func (c *command) name() string { return strings.Join(c.words, " ") }

// ask runs a program for its help, with nothing in the environment that could change it.
func ask(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// learn asks a program, and all commands below it.
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

// parseHelp takes a help text to pieces. It returns names and short texts of the commands below, too.
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
			parts = append(parts, section{lines: []string{line}}) // text again, below no heading
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
					return nil, nil, fmt.Errorf("%q is no line of a list of flags", line)
				}
				c.flags = append(c.flags, option{m[1], m[2], m[3], m[4]})
			}
		case "Global Flags": // those of the program
		case "Available Commands":
			for _, line := range p.lines {
				m := ofChild.FindStringSubmatch(line)
				if m == nil {
					return nil, nil, fmt.Errorf("%q is no line of a list of commands", line)
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

// ended says whether a section is over if a line without indentation follows: one that began with indentation, and has come
// to a blank line.
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

// exitLines brings exit codes that are told in a sentence, "0 after leaving; 64 for ...", to lines of a list.
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
