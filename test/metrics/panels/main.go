// Command panels checks that the lockspace selector of the dashboard filters every panel. It makes
// databases of Prometheus from recorded metrics: one of all hosts, and one for each selection, with
// the hosts of these lockspaces alone. With the variables replaced as Grafana does, each query of the
// first database must have exactly the result that the unfiltered query has of the other one.
//
//	panels DASHBOARD DIR
//
// DIR/LOCKSPACE/HOST/N is the N-th scrape of a host. Selections are each lockspace, the first and the
// last, and all. prometheus and promtool must be in the PATH.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// interval is the time between two scrapes in a database.
const interval = 15 * time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "panels DASHBOARD DIR")
		os.Exit(64)
	}
	n, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	fmt.Println(n)
}

// dashboard is what is needed of a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct{ List []variable }
}

type variable struct {
	Name       string
	Type       string
	Definition string
	Multi      bool
	IncludeAll bool
	AllValue   string
}

func run(path, dir string) (string, error) {
	var d dashboard
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return "", err
	}
	lockspaces, err := list(dir)
	if err != nil || len(lockspaces) < 3 {
		return "", fmt.Errorf("want the metrics of three lockspaces in %s: %q, %w", dir, lockspaces, err)
	}
	now := time.Now().Add(-time.Minute).Truncate(time.Second)
	all, err := serve(dir, now, lockspaces)
	if err != nil {
		return "", err
	}
	defer all.end()
	selections := [][]string{nil, {lockspaces[0], lockspaces[len(lockspaces)-1]}} // nil: all
	for _, name := range lockspaces {
		selections = append(selections, []string{name})
	}
	queries := 0
	for _, selected := range selections {
		of := selected
		if of == nil {
			of = lockspaces
		}
		only, err := serve(dir, now, of)
		if err != nil {
			return "", err
		}
		n, err := compare(&d, all, only, selected)
		only.end()
		if err != nil {
			return "", fmt.Errorf("lockspaces %q selected: %w", selected, err)
		}
		queries += n
	}
	return fmt.Sprintf("measured: %d queries of panels with %d selections of %d lockspaces", queries, len(selections), len(lockspaces)), nil
}

// mayBeEmpty matches queries for events that need not have happened.
var mayBeEmpty = regexp.MustCompile(`> 0\)*$`)

// compare compares the results of each query, and returns their number.
func compare(d *dashboard, all, only *server, selected []string) (int, error) {
	values, err := variables(d, all, selected)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			n++
			got, err := all.query(replace(q.Expr, values))
			if err != nil {
				return n, fmt.Errorf("panel %q: %w", p.Title, err)
			}
			want, err := only.query(replace(q.Expr, map[string]string{"instance": ".*", "lockspace": ".*"}))
			if err != nil {
				return n, fmt.Errorf("panel %q: %w", p.Title, err)
			}
			if err := same(got, want); err != nil {
				return n, fmt.Errorf("panel %q, query %s: %w", p.Title, replace(q.Expr, values), err)
			}
			if selected == nil && len(want) == 0 && !mayBeEmpty.MatchString(q.Expr) {
				return n, fmt.Errorf("panel %q, query %s has no result in any lockspace", p.Title, q.Expr)
			}
		}
	}
	return n, nil
}

// variables returns the values of the variables as Grafana puts them into queries, in the order of
// the dashboard.
func variables(d *dashboard, s *server, selected []string) (map[string]string, error) {
	values := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		parts := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if parts == nil || !v.Multi || !v.IncludeAll {
			return nil, fmt.Errorf("variable %s: %+v, want label_values(..., LABEL), several values, and All", v.Name, v)
		}
		options, err := s.labels(replace(parts[1], values), parts[2])
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		chosen := options // All
		if v.Name == "lockspace" && selected != nil {
			chosen = selected
			for _, name := range selected {
				if !slices.Contains(options, name) {
					return nil, fmt.Errorf("variable %s has no option %q: %q", v.Name, name, options)
				}
			}
		} else if v.AllValue != "" {
			values[v.Name] = v.AllValue // Grafana does not escape it
			continue
		}
		values[v.Name] = regexOf(chosen)
	}
	return values, nil
}

// regexOf returns values as Grafana puts them into a quoted regular expression of Prometheus.
func regexOf(values []string) string {
	var escaped []string
	for _, v := range values {
		v = strings.ReplaceAll(v, `\`, `\\\\`)
		escaped = append(escaped, regexp.MustCompile(`[$^*{}\[\]'+?.()|]`).ReplaceAllString(v, `\\$0`))
	}
	if len(escaped) == 1 {
		return escaped[0]
	}
	return "(" + strings.Join(escaped, "|") + ")"
}

// replace replaces the variables of a query.
func replace(query string, values map[string]string) string {
	return regexp.MustCompile(`\$\{?(\w+)\}?`).ReplaceAllStringFunc(query, func(name string) string {
		name = strings.Trim(name, "${}")
		if name == "__rate_interval" {
			return "1m"
		}
		return values[name]
	})
}

// same compares two results: the labels of each series, and its value.
func same(got, want map[string]float64) error {
	for labels, v := range want {
		other, ok := got[labels]
		if !ok {
			return fmt.Errorf("no series %s", labels)
		}
		if math.Abs(v-other) > 1e-9*math.Abs(v) || math.IsNaN(v) != math.IsNaN(other) {
			return fmt.Errorf("%s has the value %v, of the hosts of these lockspaces alone %v", labels, other, v)
		}
	}
	for labels := range got {
		if _, ok := want[labels]; !ok {
			return fmt.Errorf("series %s is of no selected lockspace", labels)
		}
	}
	return nil
}

// server is a Prometheus with recorded metrics.
type server struct {
	address string
	at      time.Time
	dir     string
	stop    context.CancelFunc
	ended   chan error
}

// serve starts a Prometheus with the metrics of some lockspaces.
func serve(from string, now time.Time, lockspaces []string) (*server, error) {
	dir, err := os.MkdirTemp(filepath.Dir(filepath.Clean(from)), "prometheus.")
	if err != nil {
		return nil, err
	}
	text, err := record(from, now, lockspaces)
	if err == nil {
		err = errors.Join(os.WriteFile(dir+"/metrics", []byte(text), 0o600), os.WriteFile(dir+"/config", nil, 0o600))
	}
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", dir+"/metrics", dir+"/data").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("promtool: %w: %s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := ln.Addr().String()
	ln.Close()
	ctx, stop := context.WithCancel(context.Background())
	s := &server{address: address, at: now, dir: dir, stop: stop, ended: make(chan error, 1)}
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+dir+"/config", "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address, "--log.level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		stop()
		return nil, err
	}
	go func() { s.ended <- cmd.Wait() }()
	for {
		r, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		select {
		case err := <-s.ended:
			stop()
			return nil, fmt.Errorf("prometheus ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) end() {
	s.stop()
	<-s.ended
	_ = os.RemoveAll(s.dir)
}

// record returns scrapes in the format of OpenMetrics, the last one of each host at now.
func record(from string, now time.Time, lockspaces []string) (string, error) {
	var b strings.Builder
	for _, lockspace := range lockspaces {
		hosts, err := list(filepath.Join(from, lockspace))
		if err != nil {
			return "", err
		}
		for _, host := range hosts {
			scrapes, err := list(filepath.Join(from, lockspace, host))
			if err != nil {
				return "", err
			}
			for i, scrape := range scrapes {
				text, err := os.ReadFile(filepath.Join(from, lockspace, host, scrape))
				if err != nil {
					return "", err
				}
				at := now.Add(-time.Duration(len(scrapes)-1-i) * interval).Unix()
				for line := range strings.Lines(string(text)) {
					if strings.HasPrefix(line, "#") {
						continue
					}
					name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
					if before, after, ok := strings.Cut(line, "{"); ok && !strings.Contains(before, " ") {
						end := strings.LastIndex(after, "} ")
						name, rest = before, after[end+2:len(after)-1]
						before = after[:end] + ","
						fmt.Fprintf(&b, "%s{%sjob=\"bakeryd\",instance=%q} %s %d\n", name, before, host, rest, at)
						continue
					}
					fmt.Fprintf(&b, "%s{job=\"bakeryd\",instance=%q} %s %d\n", name, host, rest, at)
				}
			}
		}
	}
	return b.String() + "# EOF\n", nil
}

// list returns the names in a directory, sorted.
func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// get asks the API of Prometheus.
func (s *server) get(path string, q url.Values, into any) error {
	r, err := http.Get("http://" + s.address + path + "?" + q.Encode())
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// query returns the values of a query by the labels of the series.
func (s *server) query(query string) (map[string]float64, error) {
	var a struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := s.get("/api/v1/query", url.Values{"query": {query}, "time": {strconv.FormatInt(s.at.Unix(), 10)}}, &a); err != nil {
		return nil, fmt.Errorf("query %s: %w", query, err)
	}
	values := map[string]float64{}
	for _, r := range a.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(r.Metric)) {
			labels = append(labels, fmt.Sprintf("%s=%q", name, r.Metric[name]))
		}
		values["{"+strings.Join(labels, ",")+"}"] = v
	}
	return values, nil
}

// labels returns the values of a label of some series.
func (s *server) labels(match, label string) ([]string, error) {
	var a struct{ Data []map[string]string }
	q := url.Values{"match[]": {match}, "start": {strconv.FormatInt(s.at.Add(-3*time.Hour).Unix(), 10)}, "end": {strconv.FormatInt(s.at.Unix(), 10)}}
	if err := s.get("/api/v1/series", q, &a); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, series := range a.Data {
		if v := series[label]; v != "" {
			found[v] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
