package main

import (
	"fmt"
	"strings"
)

// bakeryd completes its flags and their values. bakeryctl generates its own completions.

// choices are the values of flags that have a fixed set.
var choices = map[string][]string{
	"--host-id":    {"auto"},
	"--fence":      {"pr", "exec"},
	"--log-level":  {"debug", "info", "warn", "error"},
	"--log-format": {"auto", "text", "json", "journal"},
}

// ofPaths reports whether the value of a flag is a path.
func ofPaths(f option) bool {
	switch f.value {
	case "device", "path", "directory", "file":
		return true
	}
	return false
}

func bashCompletion(d *command) string {
	var all, paths, cases []string
	for _, f := range d.flags {
		all = append(all, f.long)
		switch {
		case choices[f.long] != nil:
			cases = append(cases, fmt.Sprintf("\t%s) COMPREPLY=($(compgen -W '%s' -- \"$word\")) ;;\n", f.long, strings.Join(choices[f.long], " ")))
		case ofPaths(f):
			paths = append(paths, f.long)
		case f.value != "":
			cases = append(cases, fmt.Sprintf("\t%s) ;;\n", f.long))
		}
	}
	return fmt.Sprintf(`# bash completion of bakeryd
_bakeryd() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
	COMPREPLY=()
	case $before in
	%s) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
%s	*) COMPREPLY=($(compgen -W '%s' -- "$word")) ;;
	esac
}
complete -F _bakeryd bakeryd
`, strings.Join(paths, " | "), strings.Join(cases, ""), strings.Join(all, " "))
}

func zshCompletion(d *command) string {
	var out strings.Builder
	out.WriteString("#compdef bakeryd\n_arguments \\\n")
	for _, f := range d.flags {
		spec := f.long
		if f.value != "" {
			spec += "="
		}
		spec += "[" + strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(f.about) + "]"
		switch {
		case choices[f.long] != nil:
			spec += ":" + f.value + ":(" + strings.Join(choices[f.long], " ") + ")"
		case ofPaths(f):
			spec += ":" + f.value + ":_files"
		case f.value != "":
			spec += ":" + f.value + ": "
		}
		if strings.Contains(f.about, "may be repeated") {
			spec = "*" + spec
		}
		fmt.Fprintf(&out, "\t'%s' \\\n", strings.ReplaceAll(spec, `'`, `'\''`))
	}
	return strings.TrimSuffix(out.String(), " \\\n") + "\n"
}

func fishCompletion(d *command) string {
	var out strings.Builder
	out.WriteString("# fish completion of bakeryd\ncomplete -c bakeryd -f\n")
	for _, f := range d.flags {
		fmt.Fprintf(&out, "complete -c bakeryd -l %s", strings.TrimPrefix(f.long, "--"))
		switch {
		case choices[f.long] != nil:
			fmt.Fprintf(&out, " -x -a '%s'", strings.Join(choices[f.long], " "))
		case ofPaths(f):
			out.WriteString(" -r -F")
		case f.value != "":
			out.WriteString(" -x")
		}
		fmt.Fprintf(&out, " -d '%s'\n", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(f.about))
	}
	return out.String()
}
