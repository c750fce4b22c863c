package generate

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completions adds the completions of bakeryctl.
func (s Source) completions(made map[string]string) error {
	var bash, zsh, fish strings.Builder
	root := s.Bakeryctl
	err := errors.Join(
		root.GenBashCompletionV2(&bash, true),
		root.GenZshCompletion(&zsh),
		root.GenFishCompletion(&fish, true),
	)
	made["completion/bash/bakeryctl"] = bash.String()
	made["completion/zsh/_bakeryctl"] = zsh.String()
	made["completion/fish/bakeryctl.fish"] = fish.String()
	return err
}

// page is a command, or a help topic, as the templates command.md and topic.md show it.
type page struct {
	Name, Short, Path string // bakeryctl-value-get, Print the value..., bakeryctl value get
	Arguments         string // in the synopsis
	Aliases           []string
	Description       string // this and the following are Markdown
	Commands          []page // below it
	Options           []flag
	Exit              string
	Environment       string
	Files             []file
	Examples          string
	See               []string
}

// item is a term of a list, and its meaning.
type item struct{ Term, Meaning string }

// pages returns the pages of a command and of those below it, the command's first. topics has the texts of the help
// topics by name.
func pages(c *cobra.Command, topics map[string]string) []page {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	p := page{
		Name: strings.ReplaceAll(c.CommandPath(), " ", "-"), Short: c.Short, Path: c.CommandPath(),
		Arguments: strings.TrimPrefix(c.UseLine(), c.CommandPath()+" "), Examples: unindent(c.Example),
		Aliases: c.Aliases,
	}
	text, exit, _ := strings.Cut(c.Long, "Exit codes:\n")
	p.Description, p.Exit = markdown(strings.TrimSpace(text)), markdown(cmp.Or(exit, commonCodes(c, topics["exit-codes"])))
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { p.Options = append(p.Options, option(f)) })
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) { p.Options = append(p.Options, option(f)) })
	slices.SortStableFunc(p.Options, func(a, b flag) int { return cmp.Compare(last(a.Name), last(b.Name)) })
	all := []page{}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			below := pages(sub, topics)
			p.Commands = append(p.Commands, below[0])
			all = append(all, below...)
		}
	}
	if len(p.Commands) > 0 {
		p.Arguments = "COMMAND [flags]"
	}
	p.Environment, p.Files = p.variables(topics["environment"]), p.files()
	return append([]page{p}, all...)
}

// topicPage returns the page of a help topic.
func topicPage(c *cobra.Command) page {
	see := append(reference.FindAllString(c.Long, -1), "bakeryctl(1)", "bakeryd(8)")
	slices.Sort(see)
	return page{Name: "bakeryctl-" + c.Name(), Short: c.Short, Description: markdown(c.Long), Examples: unindent(c.Example),
		See: slices.Compact(see)}
}

// last puts the flags that every command has behind the others.
func last(flag string) int { return slices.Index([]string{"socket", "version", "help"}, flag) }

// option returns a flag of a command as a page shows it.
func option(f *pflag.Flag) flag {
	value, about := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "false", "", "0", "0s", "[]":
	default:
		about += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return flag{Short: f.Shorthand, Name: f.Name, Value: value, About: about}
}

// commonCodes returns the exit codes of a command whose help has none: those of the topic that every command has.
func commonCodes(c *cobra.Command, topic string) (list string) {
	if c.HasAvailableSubCommands() && c.HasParent() {
		return "  64  no command is given\n\nThe page of each command has its own list."
	}
	common := []string{"0", "64", "66", "69"}
	if slices.Contains(alone, c.Name()) {
		common = common[:3]
	}
	for _, i := range items(topic) {
		if !c.HasParent() || slices.Contains(common, i.Term) {
			list += fmt.Sprintf("  %s  %s\n", i.Term, i.Meaning)
		}
	}
	return list
}

var (
	commandName = regexp.MustCompile(`\bbakeryctl ([a-z-]+)(?: ([a-z]+))?`)
	flagName    = regexp.MustCompile(`--[a-z-]+`)
	reference   = regexp.MustCompile(`\b[a-z_]+\(\d\)`)
)

// variables returns the paragraphs of the topic environment with the variables that concern a command: its page names
// them, or they name the command or a flag of it.
func (p *page) variables(topic string) (text string) {
	for paragraph := range strings.SplitSeq(topic, "\n\n") {
		list := ""
		for _, i := range items(paragraph) {
			if p.concerns(i) {
				list += fmt.Sprintf("  %s  %s\n", i.Term, i.Meaning)
			}
		}
		if list != "" {
			if heading, _, ok := strings.Cut(paragraph, ":\n"); ok {
				list = heading + ":\n" + list
			}
			text += list + "\n"
		}
	}
	return strings.TrimSpace(markdown(text))
}

func (p *page) concerns(variable item) bool {
	switch {
	case p.Path == "bakeryctl":
		return true
	case variable.Term == "BAKERY_SOCKET":
		return !p.is(alone)
	case strings.HasPrefix(variable.Term, "XDG_"):
		return p.is(hosts)
	case strings.HasPrefix(variable.Term, "BAKERY_") && strings.Contains(p.Description, variable.Term):
		return true
	}
	for _, m := range commandName.FindAllStringSubmatch(variable.Meaning, -1) {
		if p.Path == "bakeryctl "+m[1] || p.Path == "bakeryctl "+m[1]+" "+m[2] {
			return true
		}
	}
	return slices.ContainsFunc(flagName.FindAllString(variable.Meaning, -1), func(name string) bool { return p.has(name[2:]) })
}

func (p *page) has(name string) bool {
	return slices.ContainsFunc(p.Options, func(f flag) bool { return f.Name == name })
}

// is reports whether a list has the command.
func (p *page) is(list []string) bool {
	return slices.Contains(list, strings.TrimPrefix(p.Path, "bakeryctl "))
}

// refer fills See of all pages: parents, commands below, those that the page names, and related pages.
func refer(all []page) {
	byPath := map[string]string{}
	for _, p := range all {
		byPath[p.Path] = p.Name + "(1)"
	}
	for i := range all {
		p := &all[i]
		var see []string
		for words := strings.Fields(p.Path); len(words) > 1; {
			words = words[:len(words)-1]
			see = append(see, byPath[strings.Join(words, " ")])
		}
		for _, c := range p.Commands {
			see = append(see, c.Name+"(1)")
		}
		text := p.Description + p.Exit + p.Examples
		for _, f := range p.Options {
			text += " " + f.About
		}
		for _, m := range commandName.FindAllStringSubmatch(text, -1) {
			see = append(see, cmp.Or(byPath["bakeryctl "+m[1]+" "+m[2]], byPath["bakeryctl "+m[1]]))
		}
		see = append(append(see, reference.FindAllString(text, -1)...), related[strings.TrimPrefix(p.Path, "bakeryctl ")]...)
		see = append(see, "bakeryd(8)")
		for _, s := range see {
			if s != "" && s != p.Name+"(1)" && !slices.Contains(p.See, s) {
				p.See = append(p.See, s)
			}
		}
		slices.SortStableFunc(p.See, func(a, b string) int { return cmp.Compare(a[len(a)-2], b[len(b)-2]) })
	}
}

var (
	definition = regexp.MustCompile(`(?m)^  (\S+(?: \S+)*)  +(\S.*(?:\n {3,}\S.*)*)$`)
	newline    = regexp.MustCompile(`\n +`)
)

// items returns the lists of a help: terms and meanings.
func items(help string) (found []item) {
	for _, m := range definition.FindAllStringSubmatch(help, -1) {
		found = append(found, item{m[1], newline.ReplaceAllString(m[2], " ")})
	}
	return found
}

// markdown returns the text of a help as Markdown. Its lists of terms and meanings become definitions.
func markdown(help string) string {
	help = strings.ReplaceAll(help, ":\n  - ", ":\n\n  - ")
	return definition.ReplaceAllStringFunc(help, func(text string) string {
		i := items(text)[0]
		return "\n**" + i.Term + "**\n: " + i.Meaning + "\n"
	})
}

// unindent removes the two blanks with which the lines of an example begin.
func unindent(example string) string {
	return strings.ReplaceAll(strings.TrimPrefix(example, "  "), "\n  ", "\n")
}
