// Package usage says what is wrong with the words of a command line: arguments that are missing or too many, and
// commands that do not exist. Flags are in package flags. It imports package cli of bakeryctl.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
)

// Path returns the words that select a command, without bakeryctl.
func Path(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// wrong returns the error for arguments that cmd does not accept. Its hint has the usage.
func wrong(cmd *cobra.Command, format string, args ...any) error {
	return cli.Arguments(cmd.UseLine(), Path(cmd)+format, args...)
}

// None accepts no argument.
func None(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrong(cmd, " takes no argument, not %q", args[0])
	}
	return nil
}

// AtMostOne accepts one argument or none.
func AtMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return wrong(cmd, " takes one %s at most, not %d", what, len(args))
		}
		return nil
	}
}

// Some accepts one argument or more.
func Some(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return wrong(cmd, ": no %s given", what)
		}
		return Each(what)(cmd, args)
	}
}

// Each accepts any number of arguments.
func Each(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if slices.Contains(args, "") {
			return wrong(cmd, ": %s is empty", what)
		}
		return nil
	}
}

// One accepts exactly one argument that check accepts.
func One(what string, check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return wrong(cmd, ": no %s given", what)
		case 1:
			if err := check(args[0]); err != nil {
				return cli.Usage(Path(cmd), "%w", err)
			}
			return nil
		}
		return wrong(cmd, " takes one %s, not %d: unexpected %q", what, len(args), args[1])
	}
}

// NotEmpty accepts any argument but the empty one, for One.
func NotEmpty(what string) func(string) error {
	return func(arg string) error {
		if arg == "" {
			return fmt.Errorf("%s is empty", what)
		}
		return nil
	}
}

// Any accepts any argument, for One.
func Any(string) error { return nil }

// Two accepts exactly two arguments.
func Two(first, second string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return wrong(cmd, ": no %s and %s given", first, second)
		case len(args) == 1:
			return wrong(cmd, ": no %s given", second)
		case len(args) > 2:
			return wrong(cmd, " takes %s and %s, not %d arguments: unexpected %q", first, second, len(args), args[2])
		case slices.Contains(args, ""):
			return wrong(cmd, ": %s or %s is empty", first, second)
		}
		return nil
	}
}

// Group makes cmd refuse all words but those of the commands below it.
func Group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs // otherwise cobra refuses them with its own text
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args[0])
		}
		of, want := "", ""
		if cmd.HasParent() {
			of, want = Path(cmd)+": ", ", want "+commandsOf(cmd)
		}
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("%sno command given%s", of, want), Hint: "run " + cmd.CommandPath() + " --help"}
	}
}

// commandsOf returns the names of the commands below cmd, such as "get or set".
func commandsOf(cmd *cobra.Command) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return flags.Or(names)
}

// synonyms has the command for words of other programs.
var synonyms = map[string]string{
	"add": "create", "delete": "rm", "del": "rm", "remove": "rm", "ls": "locks", "ps": "status", "show": "status", "info": "status",
	"run": "lock", "exec": "lock", "acquire": "lock", "flock": "lock", "get": "value get", "set": "value set",
	"watch": "top", "monitor": "top", "log": "events", "logs": "events", "history": "events",
	"nodes": "hosts", "members": "hosts", "fsck": "check", "verify": "check", "repair": "check", "mkfs": "format", "init": "format",
	"fence": "evict", "replace": "disk replace", "benchmark": "bench",
}

// unknown returns the error for a word that is no command below cmd.
func unknown(cmd *cobra.Command, word string) error {
	of, hint := "", cmd.CommandPath()+" --help lists the commands"
	var meant []string
	switch {
	case cmd.HasSubCommands() && cmd.HasParent():
		of, hint = " of "+cmd.CommandPath(), "want "+commandsOf(cmd)+"; run "+cmd.CommandPath()+" --help"
	case !cmd.HasSubCommands():
		of, hint = " of "+cmd.CommandPath(), "run "+cmd.CommandPath()+" --help"
	case synonyms[word] != "":
		meant = []string{synonyms[word]}
	default:
		cmd.SuggestionsMinimumDistance = max(1, min(2, len(word)/2)) // of two letters one may differ
		meant = cmd.SuggestionsFor(word)
	}
	if len(meant) > 0 {
		hint = fmt.Sprintf("did you mean %s? %s", strings.Join(meant, " or "), hint)
	}
	return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("unknown command %q%s", word, of), Hint: hint}
}

// FlagHint returns the hint for an error of a flag.
func FlagHint(cmd *cobra.Command, err error) string {
	if f, ok := errors.AsType[*flags.Unknown](err); ok && f.Flag == "--permits" {
		return "create the lock with bakeryctl create NAME --permits N: only that command has the flag"
	}
	return flags.Hint(err, cmd.CommandPath()+" --help")
}

// OfUnknown returns the error for the first word of a command line if that is no command, and otherwise err, the
// error of a flag. cobra parses flags even if it does not know the command.
func OfUnknown(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknown(cmd, words[0])
	}
	return err
}

// Completion makes the command of cobra that prints completions a group.
func Completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if cmd, _, err := root.Find([]string{"completion"}); err == nil && cmd != root {
		Group(cmd)
	}
}

// Help adds the command help to root.
func Help(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Show the help of a command or a topic",
		Long:  "Show the help of a command or a topic, as COMMAND --help does.",
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			of, rest, err := root.Find(args)
			if err == nil && len(rest) == 0 {
				for _, c := range of.Commands() {
					if !c.Hidden && strings.HasPrefix(c.Name(), begun) {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknown(of, rest[0])
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	})
}

// NoEmptyPath returns an error if a flag for the path of a file was given an empty value.
func NoEmptyPath(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		if name, _ := pflag.UnquoteUsage(f); name == "PATH" && err == nil && slices.Contains(values, "") {
			err = cli.Usage(Path(cmd), "--%s is empty, want a path", f.Name)
		}
	})
	return err
}
