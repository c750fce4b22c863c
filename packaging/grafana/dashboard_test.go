// Package grafana tests the dashboard, which is edited in Grafana and exported from there.
package grafana

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// metric matches a metric in a query, with its selector.
var metric = regexp.MustCompile(`\b(bakery|process|go)_\w+(\{[^}]*\})?`)

// TestDashboard: panels do not overlap, and each has queries of the data source that is chosen.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("bakeryd.json")
	require.NoError(t, err)
	var d struct {
		Templating struct {
			List []struct{ AllValue string }
		}
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr       string
				Datasource struct{ UID string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	for _, v := range d.Templating.List {
		require.Empty(t, v.AllValue, "it would select all hosts of all lockspaces")
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID])
		ids[p.ID] = true
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, q := range p.Targets {
			require.NotEmpty(t, q.Expr, p.Title)
			for _, selector := range metric.FindAllString(q.Expr, -1) {
				require.Contains(t, selector, `instance=~"$instance"`, "%s: the lockspace selector filters by it", p.Title)
			}
			require.Equal(t, "${datasource}", q.Datasource.UID)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Less(t, at[0], 24, p.Title)
				require.Empty(t, taken[at], "%s lies on it", p.Title)
				taken[at] = p.Title
			}
		}
	}
}
