package main

import (
	"fmt"
	"regexp"
	"strings"
)

const settingsHead = `# Settings of bakeryd as a service: see bakeryd(8). Each variable stands for a flag.
# Variables that are not set have the value shown. After a change: systemctl restart bakeryd

`

var byDefault = regexp.MustCompile(`^(.*) \(default:? "?(.*?)"?\)$`)

// settingsFile returns /etc/bakery/bakeryd.env: every variable, commented out.
func settingsFile(d *command) string {
	var out strings.Builder
	out.WriteString(settingsHead)
	for _, f := range settings(d) {
		about, value := f.about, ""
		if m := byDefault.FindStringSubmatch(about); m != nil && !strings.ContainsAny(m[2], " '") {
			about, value = m[1], strings.TrimSuffix(m[2], "none") // "none" is no value
		}
		fmt.Fprintf(&out, "# %s\n#%s=%s\n\n", about, variable(f), value)
	}
	return strings.TrimSuffix(out.String(), "\n")
}
