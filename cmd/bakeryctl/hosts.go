package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func newHosts(a *app) *cobra.Command {
	var device string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "Show the hosts of the lockspace and which of them are silent",
		Long: `Show the hosts of the lockspace, how they are, and when they were last seen to
renew their lease.

live     it renews its lease
silent   it has not done so for a while; unless it does, it is declared dead, and
         its locks go to those who wait
dead     it is declared dead: its locks are free
left     it has left the lockspace
joining  it is about to be live; it holds nothing

VERDICTS are what a host publishes of others: dead, wish (asked to leave), or
forgotten (dead, and its id free), and the id. It does so until they are back.

Without --device bakeryd is asked. With it the device is read, without joining
and without bakeryd; whether a host is silent does not show there.`,
		Example: `  bakeryctl hosts
  bakeryctl hosts --json | jq '.hosts[] | select(.health == "silent")'
  bakeryctl hosts --device /dev/mapper/locks`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			shown, err := a.status(cmd.Context(), device)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.stdout, struct {
					ThisHost *report.ThisHost `json:"this_host"`
					Hosts    []report.Host    `json:"hosts"`
				}{shown.ThisHost, shown.Hosts})
			}
			return writeTable(a.stdout, func(w io.Writer) { showHostTable(w, shown, a.paint()) })
		},
	}
	cmd.Flags().StringVar(&device, "device", "", "read this `PATH` instead of asking bakeryd")
	cmd.Flags().BoolVar(&asJSON, "json", false, "show it as JSON")
	a.colourFlag(cmd)
	return cmd
}

// showHostTable writes a line for each host that ever joined.
func showHostTable(w io.Writer, r *report.Report, p paint) {
	if len(r.Hosts) == 0 {
		fmt.Fprintf(w, "no host ever joined\n")
		return
	}
	if r.ThisHost == nil {
		fmt.Fprintf(w, "read from the device; whether a host is alive does not show there\n\n")
	}
	fmt.Fprintf(w, "ID\tNAME\t%s\tSEEN\tWATCHDOG", p.cell(plain, "STATE"))
	if slices.ContainsFunc(r.Hosts, func(h report.Host) bool { return len(h.Verdicts) > 0 }) {
		fmt.Fprintf(w, "\tVERDICTS")
	}
	fmt.Fprint(w, p.heading())
	for _, h := range r.Hosts {
		name := text.Printable(h.Name)
		if r.ThisHost != nil && r.ThisHost.ID == h.ID {
			name += " (this host)"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", h.ID, name, p.cell(hostLevel(h), hostState(h)), seen(h, r.Lockspace.Policy), watchdog(h), verdicts(h, r.Hosts))
	}
}

// health is that of a report, also of one by a bakeryd that did not tell it yet.
func health(h report.Host) report.Health {
	switch {
	case h.Health != "":
		return h.Health
	case h.Dead:
		return report.HealthDead
	}
	return report.Health(h.State.String())
}

// hostState is a host's health and what else there is to know of it.
func hostState(h report.Host) string {
	state := string(health(h))
	if h.Forgotten && h.Dead {
		state += ", forgotten"
	}
	if h.AskedToLeave {
		state += ", asked to leave"
	}
	if h.Unreadable {
		state += ", unreadable"
	}
	return state
}

// hostLevel is how bad it is what hostState says.
func hostLevel(h report.Host) level {
	switch state := health(h); {
	case state == report.HealthSilent, h.Unreadable, state == report.HealthDead && !h.Forgotten:
		return bad
	case state == report.HealthJoining, h.AskedToLeave:
		return warn
	case state == report.HealthLive:
		return good
	}
	return soft
}

// seen says when a host was last seen to renew, and what comes of it if it is not seen again.
func seen(h report.Host, policy layout.Policy) string {
	switch {
	case h.SilentMS == nil:
		return "-"
	case health(h) == report.HealthSilent:
		return "silent for " + seconds(*h.SilentMS) + outlook(h, policy)
	}
	return "renewed " + seconds(*h.SilentMS) + " ago"
}

// outlook says what becomes of a silent host, in a part of a sentence.
func outlook(h report.Host, policy layout.Policy) string {
	switch fence := policy == layout.PolicyFence; {
	case h.DeadInMS == nil:
		return ""
	case *h.DeadInMS <= 0 && fence:
		return ", being fenced"
	case *h.DeadInMS <= 0:
		return ", being declared dead"
	case fence:
		return ", fenced in " + seconds(*h.DeadInMS)
	}
	return ", dead in " + seconds(*h.DeadInMS)
}

func watchdog(h report.Host) string {
	if !h.WatchdogArmed {
		return "-"
	}
	return fmt.Sprintf("armed %d s", h.WatchdogSeconds)
}

// verdicts are what a host publishes of others. An incarnation is named if it is not the one that the table shows.
func verdicts(h report.Host, hosts []report.Host) string {
	var all []string
	for _, v := range h.Verdicts {
		text := fmt.Sprintf("%v %d", v.Kind, v.Host)
		if of := hostByID(hosts, v.Host); of == nil || of.Incarnation != v.Incarnation {
			text += fmt.Sprintf("/%016x", v.Incarnation)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func hostByID(hosts []report.Host, id int) *report.Host {
	for i := range hosts {
		if hosts[i].ID == id {
			return &hosts[i]
		}
	}
	return nil
}
