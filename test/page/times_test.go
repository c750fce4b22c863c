package page

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

// silence is a report of a host that is silent with a lock, as bakeryd words it.
func silence(o object) {
	since, end := object{"words": "no renewal for", "ms": 21_200, "left": false, "over": ""}, object{"words": "dead in", "ms": 14_100, "left": true, "over": "being declared dead"}
	times := []object{end, since}
	set("report.hosts.2", object{"health": "silent", "silent_ms": 21_200, "dead_in_ms": 14_100, "silence": "no renewal for 21 s, dead in 15 s", "times": times})(o)
	set("report.locks.1", object{"stuck": "held by host 3 (db3), silent, dead in 15 s", "times": times})(o)
	set("report.lockspace", object{"uuid": "01234567-89ab-4def-8123-456789abcdef"})(o) // bakeryctl wants valid values
	set("report.locks.0.holders.0", object{"token": "6145"})(o)
	set("report.locks.1.holders.0", object{"token": "6145"})(o)
	set("report.locks.0.queue.0", object{"ticket": "8449"})(o)
	problem("error", "silent", "host 3 (db3) is silent", "no renewal for 21 s, dead in 15 s", "if you are certain that it is off: bakeryctl evict 3")(o)
	problem("error", "stuck", "lock lock-00002 is stuck", "held by host 3 (db3), silent, dead in 15 s", "")(o)
	for _, p := range in(o, "report")["problems"].([]object) {
		p["times"] = times
	}
}

var shownTime = regexp.MustCompile(`(no renewal for|dead in) \d+ s|being declared dead`)

// oneNumber: the page and the commands show the same numbers for a report. The page counts on from
// them: all its texts show one number then.
func oneNumber(t *testing.T, real string) {
	a := answer(3, 5, 2, 1, silence)
	wanted := []string{"dead in 15 s", "no renewal for 21 s"}
	distinct := func(text string) []string {
		return slices.Compact(slices.Sorted(slices.Values(shownTime.FindAllString(text, -1))))
	}

	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	mux := http.NewServeMux()
	serve := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(v) })
	}
	a["at"] = time.Now().UTC()
	serve("/v1/status", a["report"])
	serve("/page/status", a)
	srv := httptest.NewUnstartedServer(mux)
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	for _, command := range [][]string{{"status"}, {"hosts"}, {"top", "--once"}} {
		out, err := exec.Command(filepath.Join(browser.Bin, "bakeryctl"), append([]string{"--socket", socket}, command...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, wanted, distinct(string(out)), "%v: %s", command, out)
	}

	s := newStage(t, real, a)
	b := browser.Visit(t, s.url, ready)
	text, err := json.Marshal(a)
	require.NoError(t, err)
	shown := browser.Eval[[][]string](b, `(() => {
		const answer = `+string(text)+`, began = performance.now();
		const read = (age) => {
			performance.now = () => began + age;
			document.getElementById('hostsearch').oninput(); // draws
			return ['headline', 'troubles', 'hostlist', 'locklist'].map((id) => document.getElementById(id).textContent);
		};
		performance.now = () => began;
		statusPage.take(answer);
		const all = [0, 900, 5000, 60_000].map(read);
		delete performance.now;
		return all;
	})()`)
	for i, want := range [][]string{wanted, {"dead in 14 s", "no renewal for 22 s"}, {"dead in 10 s", "no renewal for 26 s"}, {"being declared dead", "no renewal for 81 s"}} {
		for place, text := range shown[i] {
			got := distinct(text)
			require.Subset(t, want, got, "place %d, age %d: %s", place, i, text)
			require.Contains(t, got, want[0], "place %d, age %d: %s", place, i, text)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1900, 1280, 420} {
			b.Media(scheme, width, 900)
			b.Shot(fmt.Sprintf("silence-%s-%d", scheme, width))
			fits(b, width)
		}
	}
	b.Quiet()
}
