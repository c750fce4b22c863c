package structure

// maxCircle is the highest number of files of a package that may depend on each other in a circle.
const maxCircle = 13

// maxLines is the highest number of lines of a package.
const maxLines = 2_100

// http has the packages that import net/http or a package below it, and what for.
var http = map[string]string{
	"daemon/server":  "the server",
	"daemon/fdlimit": "the limit of connections",
	"daemon/metrics": "the handler that Prometheus asks",
	"daemon/page":    "the handler of the status page",
}

// atOnce has the packages that bakeryctl-lock must not link, not even by others, and why: each makes the start of
// bakeryctl lock later.
var atOnce = map[string]string{
	"net/http":               "the HTTP server and client",
	"crypto/tls":             "comes with net/http",
	"os/user":                "links libc with cgo, which net does without netgo",
	"text/template":          "comes with cobra and with pages; the linker then keeps every exported method",
	"github.com/spf13/cobra": "commands and help",
	"daemon":                 "a host of its own, for --device",
	"daemon/metrics":         "metrics",
	"ctl/render":             "tables and colours",
	"ctl/top":                "terminals",
}

// imports has what each package imports of the module, from the foundations up: a package imports only packages above it.
var imports = []struct{ path, imports string }{
	// The foundations: the format, the protocol, the disk.
	{"layout", ""},
	{"bakery", "layout"},
	{"blockdev/latency", ""},
	{"blockdev", "blockdev/latency"},
	{"blockdev/mirror", "blockdev"},

	// Tools for the rest. Each knows one thing, and no lockspace.
	{"daemon/text", ""},
	{"daemon/line", ""},
	{"daemon/http1", ""},
	{"daemon/retry", ""},
	{"daemon/warn", ""},
	{"daemon/clock", ""},
	{"daemon/stall", ""},
	{"daemon/process", ""},
	{"daemon/cgroup", "daemon/process"},
	{"daemon/peer", ""},
	{"daemon/rawio", ""},
	{"daemon/tally", "blockdev/latency"},
	{"daemon/page", ""},
	{"daemon/tasks", ""},
	{"daemon/sanlock/wire", ""},

	// The API of bakeryd, and the Go client.
	{"daemon/api", "daemon/line layout"},
	{"daemon/access", "daemon/api layout"},
	{"daemon/policy", "daemon/access daemon/text"},
	{"daemon/client", "daemon/api daemon/clock daemon/http1 daemon/line daemon/rawio layout"},

	// The lockspace, with no host joined.
	{"daemon/lease/timing", "layout"},
	{"daemon/lease/complaints", "daemon/lease/timing layout"},
	{"daemon/lease/members", "layout"},
	{"daemon/lease/evict", ""},
	{"daemon/lease", "daemon/lease/complaints daemon/lease/evict daemon/lease/members daemon/lease/timing layout"},
	{"daemon/lockspace", "blockdev blockdev/mirror daemon/lease/timing daemon/text layout"},
	{"daemon/lockspace/measure", "blockdev blockdev/latency daemon/lockspace daemon/retry daemon/text"},
	{"daemon/lockspace/format", "blockdev daemon/lockspace daemon/lockspace/measure daemon/retry daemon/text layout"},
	{"daemon/lockspace/check", "bakery blockdev blockdev/mirror daemon/lease/timing daemon/lockspace daemon/lockspace/format daemon/retry daemon/text layout"},
	{"daemon/lockspace/directory", "blockdev blockdev/mirror daemon/api daemon/lockspace daemon/lockspace/check layout"},
	{"daemon/lockspace/replace", "blockdev blockdev/mirror daemon/lockspace daemon/lockspace/directory daemon/lockspace/format daemon/text layout"},
	{"daemon/report", "blockdev daemon/api daemon/lease daemon/lease/timing daemon/lockspace daemon/text layout"},

	// The event journal and its pages.
	{"daemon/events", "daemon/clock daemon/line daemon/retry daemon/text layout"},
	{"daemon/observe", "daemon/events daemon/tally layout"},
	{"daemon/timeline", "daemon/events daemon/text layout"},

	// One host's place in a lockspace.
	{"daemon/hostid", "blockdev daemon/api layout"},
	{"daemon/handover", "daemon/cgroup daemon/hostid daemon/line daemon/text layout"},
	{"daemon/fence", "blockdev daemon/retry daemon/text"},
	{"daemon/watchdog", ""},
	{"daemon/standing", "bakery daemon/lease layout"},
	{"daemon/waiting", "daemon/lease daemon/lease/timing daemon/text layout"},
	{"daemon/memberdisks", "blockdev blockdev/mirror daemon/events daemon/fence daemon/hostid daemon/lockspace daemon/report daemon/warn layout"},
	{"daemon/membership", "bakery blockdev blockdev/mirror daemon/api daemon/clock daemon/events daemon/fence daemon/handover daemon/hostid daemon/lease daemon/lease/members daemon/lease/timing daemon/lockspace daemon/stall daemon/standing daemon/tally daemon/text daemon/waiting daemon/warn layout"},

	// One host's clients.
	{"daemon/fdlimit", "daemon/access daemon/api daemon/peer daemon/tally daemon/warn"},
	{"daemon/liveness", "daemon/access daemon/fdlimit daemon/handover daemon/hostid daemon/process daemon/text layout"},
	{"daemon/command", "daemon/api daemon/cgroup daemon/events daemon/handover daemon/liveness daemon/peer daemon/process daemon/retry"},

	// sanlock's socket.
	{"daemon/sanlock/area", "blockdev daemon/text layout"},

	// The locks of a joined host.
	{"daemon/locks/store", "bakery blockdev blockdev/mirror daemon/clock daemon/handover daemon/lease/timing daemon/lockspace daemon/lockspace/directory daemon/stall layout"},
	{"daemon/locks/queue", "daemon/api daemon/events daemon/handover daemon/lockspace daemon/observe daemon/report layout"},
	{"daemon/locks/driver", "bakery daemon/api daemon/events daemon/handover daemon/locks/queue daemon/locks/store daemon/lockspace daemon/lockspace/directory daemon/membership daemon/observe daemon/standing daemon/warn layout"},
	{"daemon/locks", "bakery blockdev blockdev/mirror daemon/api daemon/events daemon/handover daemon/locks/driver daemon/locks/queue daemon/locks/store daemon/lockspace daemon/lockspace/check daemon/lockspace/directory daemon/lockspace/format daemon/membership daemon/report daemon/retry daemon/tasks daemon/text layout"},
	// Its clients, its server and its service.
	{"daemon/wire", "daemon/api daemon/peer daemon/rawio daemon/tally"},
	{"daemon/session", "daemon/api daemon/clock daemon/command daemon/events daemon/fdlimit daemon/handover daemon/lease/timing daemon/liveness daemon/locks daemon/locks/queue daemon/membership daemon/observe daemon/process daemon/tasks daemon/warn layout"},
	{"daemon/locks/measuring", "blockdev blockdev/latency daemon/api daemon/locks daemon/locks/driver daemon/locks/store daemon/lockspace daemon/lockspace/measure daemon/membership daemon/retry daemon/text layout"},
	{"daemon/server/body", "daemon/api"},
	{"daemon/server", "daemon/access daemon/api daemon/events daemon/fdlimit daemon/lease/evict daemon/line daemon/locks daemon/locks/measuring daemon/lockspace/directory daemon/page daemon/peer daemon/policy daemon/process daemon/rawio daemon/report daemon/server/body daemon/session daemon/tally daemon/text daemon/warn daemon/wire layout"},
	{"daemon", "blockdev blockdev/mirror daemon/api daemon/clock daemon/command daemon/events daemon/fdlimit daemon/fence daemon/handover daemon/hostid daemon/lease daemon/lease/timing daemon/liveness daemon/locks daemon/locks/driver daemon/locks/measuring daemon/locks/queue daemon/locks/store daemon/lockspace daemon/lockspace/check daemon/lockspace/measure daemon/memberdisks daemon/membership daemon/observe daemon/process daemon/report daemon/retry daemon/server daemon/session daemon/stall daemon/tally daemon/tasks daemon/text daemon/waiting daemon/warn daemon/watchdog layout"},

	// Clients of sanlock.
	{"daemon/sanlock/area", "blockdev daemon/text layout"},
	{"daemon/sanlock/registry", "daemon/process daemon/sanlock/wire layout"},
	{"daemon/sanlock/killing", "daemon/retry daemon/sanlock/registry daemon/sanlock/wire"},
	{"daemon/sanlock/statefile", ""},
	{"daemon/sanlock/hosts", "daemon/api daemon/lease daemon/locks daemon/membership daemon/sanlock/wire layout"},
	{"daemon/sanlock", "daemon/api daemon/clock daemon/locks daemon/membership daemon/peer daemon/process daemon/sanlock/area daemon/sanlock/hosts daemon/sanlock/killing daemon/sanlock/registry daemon/sanlock/statefile daemon/sanlock/wire daemon/session daemon/tasks layout"},

	// Users of a host.
	{"daemon/metrics", "daemon daemon/locks/queue daemon/report daemon/tally"},
	{"daemon/replacement", "blockdev blockdev/mirror daemon daemon/clock daemon/lease daemon/lease/timing daemon/locks daemon/lockspace daemon/lockspace/directory daemon/lockspace/replace daemon/retry daemon/text daemon/waiting layout"},
	{"daemon/load", "daemon daemon/client daemon/locks layout"},
	{"daemon/stress", "bakery daemon daemon/api daemon/client daemon/load daemon/locks daemon/lockspace daemon/retry layout"},

	// The programs. ctl/ is cmd/bakeryctl/internal/.
	{"cmd/internal/flags", ""},
	{"cmd/internal/advice", "blockdev daemon/lockspace layout"},
	{"ctl/term", ""},
	{"ctl/cli", "ctl/term"},
	{"ctl/topics", "ctl/cli"},
	{"ctl/signals", "ctl/cli"},
	{"ctl/render", "ctl/term"},
	{"ctl/call", "ctl/cli daemon/client daemon/peer daemon/process"},
	{"ctl/ondevice", "blockdev cmd/internal/advice ctl/cli daemon daemon/lease daemon/lockspace daemon/lockspace/format daemon/report layout"},
	{"ctl/show", "ctl/call ctl/cli ctl/render daemon/api daemon/events daemon/lease/timing daemon/lockspace daemon/lockspace/format daemon/report daemon/text layout"},
	{"ctl/supervise", "ctl/cli ctl/signals ctl/term daemon/cgroup daemon/client daemon/clock daemon/process daemon/text"},
	{"ctl/hold", "ctl/cli ctl/signals ctl/supervise daemon/clock"},
	{"ctl/acquire", "ctl/call ctl/cli ctl/signals ctl/supervise ctl/term daemon/client daemon/text"},
	{"ctl/join", "ctl/acquire ctl/cli ctl/ondevice ctl/supervise daemon daemon/api daemon/client daemon/locks daemon/lockspace layout"},
	{"ctl/lock", "cmd/internal/flags ctl/acquire ctl/call ctl/cli ctl/signals ctl/supervise daemon/client layout"},
	{"ctl/probe", "blockdev blockdev/latency ctl/call ctl/cli ctl/ondevice ctl/render ctl/show daemon daemon/api daemon/client daemon/fence daemon/lease/timing daemon/locks/measuring daemon/lockspace daemon/lockspace/format daemon/lockspace/measure daemon/report daemon/text layout"},
	{"ctl/bench", "blockdev/latency ctl/call ctl/cli ctl/lock ctl/ondevice ctl/render ctl/show ctl/signals daemon daemon/api daemon/client daemon/lease daemon/load daemon/locks daemon/locks/measuring daemon/report daemon/retry daemon/server daemon/text layout"},
	{"ctl/check", "blockdev ctl/cli ctl/ondevice ctl/render ctl/show daemon daemon/lockspace/check daemon/text layout"},
	{"ctl/replace", "blockdev ctl/call ctl/cli ctl/ondevice ctl/render ctl/show daemon daemon/lockspace daemon/lockspace/format daemon/lockspace/replace daemon/replacement daemon/report daemon/retry daemon/text"},
	{"ctl/stress", "ctl/call ctl/cli ctl/ondevice daemon/api daemon/stress daemon/text layout"},
	{"ctl/usage", "cmd/internal/flags ctl/cli"},
	{"ctl/complete", "ctl/call daemon/client daemon/report daemon/text"},
	{"ctl/top", "ctl/cli ctl/render ctl/show ctl/term daemon/api daemon/client daemon/events daemon/report daemon/retry daemon/text layout"},
	{"cmd/bakeryctl/bakeryctl-lock", "ctl/cli ctl/lock ctl/signals ctl/supervise"},
	{"cmd/bakeryctl", "blockdev cmd/internal/flags ctl/acquire ctl/bench ctl/call ctl/check ctl/cli ctl/complete ctl/hold ctl/join ctl/lock ctl/ondevice ctl/probe ctl/render ctl/replace ctl/show ctl/signals ctl/stress ctl/supervise ctl/term ctl/top ctl/topics ctl/usage daemon/api daemon/client daemon/events daemon/locks daemon/lockspace daemon/lockspace/directory daemon/lockspace/format daemon/report daemon/text daemon/timeline layout"},
	{"cmd/bakeryd", "cmd/internal/advice cmd/internal/flags daemon daemon/access daemon/api daemon/clock daemon/fdlimit daemon/hostid daemon/lease daemon/membership daemon/metrics daemon/policy daemon/retry daemon/sanlock daemon/sanlock/killing daemon/server daemon/waiting layout"},

	// For tests.
	{"packaging/docs", ""},
	{"packaging/generate", ""},
	{"packaging/grafana", ""},
	{"packaging/schema", "daemon/api layout"},
}
