// Package complete has the completions of a shell: names from bakeryd, the words that a flag accepts, and files only
// where a file is wanted. If bakeryd does not answer in time there are no names, and no message. It imports the
// client and package call.
//
// Names come from the disk. bash inserts what several names begin with as it is, and the next completion evaluates
// the line, with any command in it. The functions therefore return plain names only.
package complete

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

const none = cobra.ShellCompDirectiveNoFileComp

// Bakeryd completes words with what the bakeryd at Socket knows.
type Bakeryd struct {
	Socket  *string
	Timeout *time.Duration
}

// Lock completes the first argument with the names of locks, and no other argument.
func (b Bakeryd) Lock(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, none
	}
	return b.AnyLock(cmd, nil, begun)
}

// Command completes the arguments of bakeryctl lock: the name of a lock, and what the shell knows of a command.
func (b Bakeryd) Command(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return b.AnyLock(cmd, nil, begun)
}

// AnyLock completes a word with the names of locks, whatever is before it.
func (b Bakeryd) AnyLock(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), *b.Timeout)
	defer cancel()
	locks, _ := client.New(*b.Socket).Locks(ctx)
	var names []string
	for _, l := range locks {
		names = append(names, l.Name)
	}
	return bounded(names, begun)
}

// most is the highest number of names that a shell is given. A lockspace may have 65,536 locks.
const most = 500

// plain matches the names that mean themselves in the command line of every shell, and are no flags.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@+,][A-Za-z0-9_./:@%+,=-]*$`)

// bounded returns the plain names that begin with begun. If there are too many it returns the different beginnings that are
// one letter longer, to which the shell then adds no space.
func bounded(names []string, begun string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	longer := map[string]bool{}
	for _, name := range names {
		if !plain.MatchString(name) || !strings.HasPrefix(name, begun) {
			continue
		}
		found = append(found, name)
		longer[name[:min(len(begun)+1, len(name))]] = true
	}
	if len(found) <= most {
		return found, none
	}
	return slices.Sorted(maps.Keys(longer)), none | cobra.ShellCompDirectiveNoSpace
}

// status asks bakeryd for its status; an empty one if it does not answer.
func (b Bakeryd) status(cmd *cobra.Command) (s report.Report) {
	ctx, cancel := context.WithTimeout(cmd.Context(), *b.Timeout)
	defer cancel()
	if call.Ask(ctx, *b.Socket, "GET", "/v1/status", nil, &s) != nil {
		return report.Report{}
	}
	return s
}

// Host completes the first argument with the names of hosts, and with the ids of those that have no plain name of
// their own.
func (b Bakeryd) Host(cmd *cobra.Command, args []string, begun string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, none
	}
	found, _ = b.HostOrFile(cmd, nil, begun)
	return found, none
}

// HostOrFile completes a word with the names of hosts, whatever is before it, and with files.
func (b Bakeryd) HostOrFile(cmd *cobra.Command, _ []string, begun string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	hosts := b.status(cmd).Hosts
	named := map[string]int{}
	for _, h := range hosts {
		named[h.Name]++
	}
	for _, h := range hosts {
		word := h.Name
		if _, err := strconv.Atoi(word); err == nil || named[word] > 1 || !plain.MatchString(word) { // a number is an id
			word = strconv.Itoa(h.ID)
		}
		if strings.HasPrefix(word, begun) {
			found = append(found, cobra.CompletionWithDesc(word, fmt.Sprintf("host %d, %s", h.ID, h.Health)))
		}
	}
	return found, cobra.ShellCompDirectiveDefault
}

// OldDisk completes the first argument with the uuids of the member disks, and the second one with files.
func (b Bakeryd) OldDisk(cmd *cobra.Command, args []string, begun string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		for _, d := range b.status(cmd).Disks {
			if id := d.UUID.String(); strings.HasPrefix(id, begun) {
				found = append(found, cobra.CompletionWithDesc(id, fmt.Sprintf("disk %d, %s, %s", d.Position, d.State, text.Printable(d.Device))))
			}
		}
		return found, cobra.ShellCompDirectiveDefault // or the path of the disk
	case 1:
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, none
}

// First completes the first argument with words.
func First(words ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, none
		}
		return words, none
	}
}

// Add completes what the functions of cmd do not: flags by the words that they accept, and no files unless the name
// of a value or argument is that of a file.
func Add(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		Add(c)
	}
	if _, arguments, _ := strings.Cut(cmd.Use, " "); cmd.ValidArgsFunction == nil && !isFile(arguments) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, has := cmd.GetFlagCompletionFunc(f.Name); has {
			return
		}
		complete := cobra.NoFileCompletions
		if own, ok := f.Value.(interface{ Choices() []string }); ok {
			complete = cobra.FixedCompletions(own.Choices(), none)
		} else if name, _ := pflag.UnquoteUsage(f); isFile(name) {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // the flag exists, and has none
	})
}

// isFile reports whether the name of a value is that of a file, a device or a command.
func isFile(name string) bool {
	for _, word := range []string{"PATH", "SOCKET", "DEVICE", "EVENTS", "CMD"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
