// Command grafana writes bakeryd's dashboard for Grafana, which is stored next to it:
//
//	go run ./packaging/grafana >packaging/grafana/bakeryd.json
//	go run ./packaging/grafana --rules             # its queries as rules, for promtool to check
//
// The panels are in panels.go.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	write := dashboard
	if len(os.Args) == 2 && os.Args[1] == "--rules" {
		write = queriesAsRules
	}
	text, err := write()
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

// object is a JSON object.
type object = map[string]any

// panel shows one or more queries.
type panel struct {
	title, about string
	unit         string // Grafana's name of it
	kind         string // timeseries, stat or table
	width        int    // in columns; a row has 24
	queries      []query
	max          float64 // of the scale; 0: automatic
	stacked      bool
	colours      []step // of a stat: the colour from each value on
}

type query struct{ expr, legend string }

type step struct {
	from   float64
	colour string
}

// row is the panels below a title.
type row struct {
	title  string
	height int
	panels []panel
}

// dashboard returns the JSON for Grafana's import.
func dashboard() ([]byte, error) {
	var all []object
	y := 0
	for _, r := range rows {
		all = append(all, object{"id": len(all) + 1, "type": "row", "title": r.title, "collapsed": false, "panels": []any{},
			"gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x := 0
		for _, p := range r.panels {
			if x+p.width > 24 {
				x, y = 0, y+r.height
			}
			o := p.object()
			o["id"], o["gridPos"] = len(all)+1, object{"x": x, "y": y, "w": p.width, "h": r.height}
			all = append(all, o)
			x += p.width
		}
		y += r.height
	}
	text, err := json.MarshalIndent(object{
		"title": "bakeryd", "uid": "bakeryd", "tags": []string{"bakeryd", "locks"}, "schemaVersion": 38, "version": 1, "editable": true,
		"description": "Locks of hosts that share a disk: leases, waits, the device.",
		"refresh":     "30s", "time": object{"from": "now-3h", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
		"annotations": object{"list": []any{}}, "links": []any{}, "panels": all,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1},
			choice("lockspace", "Lockspace", "label_values(bakery_lockspace_info, uuid)", true),
			choice("instance", "Host", `label_values(bakery_lockspace_info{uuid=~"$lockspace"}, instance)`, true),
		}},
	}, "", "  ")
	return append(text, '\n'), err
}

// queriesAsRules returns all queries as recording rules, with Grafana's variables replaced.
func queriesAsRules() ([]byte, error) {
	var rules []object
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				expr := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(q.expr)
				rules = append(rules, object{"record": fmt.Sprintf("panel:query:%d", len(rules)), "expr": expr})
			}
		}
	}
	text, err := json.Marshal(object{"groups": []object{{"name": "dashboard", "rules": rules}}})
	return append(text, '\n'), err
}

// choice returns a variable with the values of a label.
func choice(name, label, values string, several bool) object {
	return object{"name": name, "label": label, "type": "query", "datasource": source(), "definition": values,
		"query": object{"query": values, "refId": name}, "refresh": 2, "sort": 1, "multi": several, "includeAll": several,
		"allValue": ".*", "current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}}
}

func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

func (p *panel) object() object {
	var targets []object
	for i, q := range p.queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source(), "expr": q.expr, "legendFormat": q.legend, "editorMode": "code"}
		if p.kind == "table" {
			t["format"], t["instant"] = "table", true
		} else {
			t["range"] = true
		}
		targets = append(targets, t)
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.max != 0 {
		defaults["max"] = p.max
	}
	o := object{"type": p.kind, "title": p.title, "description": p.about, "datasource": source(), "targets": targets}
	switch p.kind {
	case "timeseries":
		custom := object{"lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false}
		if p.stacked {
			custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 40
		}
		defaults["custom"] = custom
		o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case "stat":
		steps := []object{{"value": nil, "color": "text"}}
		for _, s := range p.colours {
			steps = append(steps, object{"value": s.from, "color": s.colour})
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "area"}
	case "table":
		defaults["custom"] = object{"filterable": true}
		o["transformations"] = []object{{"id": "merge", "options": object{}},
			{"id": "organize", "options": object{"excludeByName": object{"Time": true, "Value": true, "__name__": true, "job": true}}}}
	}
	o["fieldConfig"] = object{"defaults": defaults, "overrides": []any{}}
	return o
}
