package main

const (
	of    = `instance=~"$instance"`
	every = "[$__rate_interval]"
)

var rows = []row{
	{"Hosts", 5, []panel{
		{title: "Answering", about: "Hosts that have joined their lockspace.", kind: "stat", width: 4,
			queries: []query{{"sum(bakery_joined{" + of + "})", "joined"}}, colours: []step{{0, "red"}, {1, "green"}}},
		{title: "Least lease left", about: "A host renews six times within a lease. Below half of a lease renewals fail.", unit: "s", kind: "stat", width: 4,
			queries: []query{{"min(bakery_lease_left_seconds{" + of + "})", "left"}}},
		{title: "Dead hosts", about: "Greatest number that any host sees. Their locks are free.", kind: "stat", width: 4,
			queries: []query{{"max(bakery_hosts{" + of + `,health="dead"})`, "dead"}}, colours: []step{{0, "green"}, {1, "orange"}}},
		{title: "Silent hosts", about: "Hosts that do not renew and are not declared dead yet.", kind: "stat", width: 4,
			queries: []query{{"max(bakery_hosts{" + of + `,health="silent"})`, "silent"}}, colours: []step{{0, "green"}, {1, "red"}}},
		{title: "Longest wait", about: "Of the clients that are waiting.", unit: "s", kind: "stat", width: 4,
			queries: []query{{"max(bakery_longest_wait_seconds{" + of + "})", "waits"}}},
		{title: "Oldest request", about: "Requests in flight. If it grows, the device hangs.", unit: "s", kind: "stat", width: 4,
			queries: []query{{"max(bakery_io_oldest_seconds{" + of + "})", "oldest"}}, colours: []step{{0, "green"}, {1, "orange"}, {5, "red"}}},
	}},
	{"Leases", 8, []panel{
		{title: "Lease left", about: "By scrape. It falls from the full lease to five sixths, and starts again.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"bakery_lease_left_seconds{" + of + "}", "{{instance}}"}, {"max(bakery_lease_seconds{" + of + "}) / 2", "half a lease"}}},
		{title: "Renewals, p99", about: "From the start of reading the host table until the write is durable.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"histogram_quantile(0.99, sum by (instance, le) (rate(bakery_lease_renewal_duration_seconds_bucket{" + of + "}" + every + ")))", "{{instance}}"}}},
		{title: "Renewals", about: "And failed requests for the lease, which are retried.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"rate(bakery_lease_renewals_total{" + of + "}" + every + ")", "{{instance}}"},
				{"rate(bakery_lease_renewal_failures_total{" + of + "}" + every + ")", "{{instance}} failed"}}},
		{title: "State", about: "As each host reports it.", kind: "timeseries", width: 8, max: 1,
			queries: []query{{"bakery_state{" + of + "} == 1", "{{instance}} {{state}}"}}},
		{title: "Hosts by health", about: "Greatest number that any host sees.", kind: "timeseries", width: 8, stacked: true,
			queries: []query{{"max by (health) (bakery_hosts{" + of + "})", "{{health}}"}}},
		{title: "Host events", about: "Within each interval.", kind: "timeseries", width: 8,
			queries: []query{
				{"increase(bakery_leases_lost_total{" + of + "}" + every + ")", "{{instance}} lost its lease"},
				{"increase(bakery_joins_total{" + of + "}" + every + ")", "{{instance}} joined, resumed {{resumed}}"},
				{"increase(bakery_host_deaths_total{" + of + `,by="self"}` + every + ")", "{{instance}} declared a host dead"},
				{"increase(bakery_host_deaths_total{" + of + `,by="other"}` + every + ")", "{{instance}} learned of a death"},
				{"increase(bakery_hosts_fenced_total{" + of + "}" + every + ")", "{{instance}} fenced a host"},
				{"increase(bakery_fencing_failures_total{" + of + "}" + every + ")", "{{instance}} failed to fence"},
				{"increase(bakery_recoveries_total{" + of + "}" + every + ")", "{{instance}} recovered from a dead host"},
				{"increase(bakery_evictions_total{" + of + "}" + every + ")", "{{instance}} evicted a host"},
			}},
	}},
	{"Locks", 8, []panel{
		{title: "Grants", about: "Handoffs pass between clients of one host, without the disk.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"rate(bakery_grants_total{" + of + "}" + every + ")", "{{instance}}"},
				{"rate(bakery_handoffs_total{" + of + "}" + every + ")", "{{instance}} handoffs"}}},
		{title: "Waits", about: "Of granted requests.", unit: "s", kind: "timeseries", width: 8, queries: quantiles("bakery_wait_duration_seconds")},
		{title: "Holds", about: "Of holds that have ended.", unit: "s", kind: "timeseries", width: 8, queries: quantiles("bakery_hold_duration_seconds")},
		{title: "Clients", about: "Clients that hold a lock, and that wait for one.", kind: "timeseries", width: 8,
			queries: []query{{"bakery_holding{" + of + "}", "{{instance}} hold"}, {"bakery_waiting{" + of + "}", "{{instance}} wait"},
				{"bakery_sessions{" + of + "}", "{{instance}} connected"}}},
		{title: "Longest wait", about: "Of the clients that are waiting.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"bakery_longest_wait_seconds{" + of + "}", "{{instance}}"}}},
		{title: "Refused", about: "By error code: busy and timeout are results that clients asked for.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"sum by (code) (rate(bakery_refused_total{" + of + "}" + every + ")) > 0", "{{code}}"}}},
	}},
	{"Each lock", 8, []panel{
		{title: "Grants", about: "The locks with the most grants. The series without a name sums the locks that are not counted separately.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"topk(10, sum by (lock) (rate(bakery_lock_grants_total{" + of + "}" + every + ")))", "{{lock}}"},
				{"topk(10, sum by (lock) (rate(bakery_lock_handoffs_total{" + of + "}" + every + ")) > 0)", "{{lock}} handoffs"}}},
		{title: "Mean wait", about: "Of granted requests.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{perGrant("bakery_lock_wait_seconds_total"), "{{lock}}"}}},
		{title: "Utilization", about: "Share of the time held, from holds that have ended.", unit: "percentunit", kind: "timeseries", width: 8,
			queries: []query{{"topk(10, sum by (lock) (rate(bakery_lock_hold_seconds_total{" + of + "}" + every + ")))", "{{lock}}"}}},
		{title: "Waiting", about: "Clients, by lock.", kind: "timeseries", width: 12,
			queries: []query{{"topk(10, sum by (lock) (bakery_lock_waiting{" + of + "}) > 0)", "{{lock}}"}}},
		{title: "Holding", about: "Clients, by lock.", kind: "timeseries", width: 12,
			queries: []query{{"topk(10, sum by (lock) (bakery_lock_holding{" + of + "}) > 0)", "{{lock}}"}}},
	}},
	{"Device", 8, []panel{
		{title: "Requests, p99", about: "For leases, for locks, and for status reports, which read the whole lockspace.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"histogram_quantile(0.99, sum by (op, kind, le) (rate(bakery_io_duration_seconds_bucket{" + of + "}" + every + ")))", "{{op}}, {{kind}}"}}},
		{title: "Requests", about: "By purpose.", unit: "iops", kind: "timeseries", width: 8,
			queries: []query{{"sum by (op, kind) (rate(bakery_io_duration_seconds_count{" + of + "}" + every + "))", "{{op}}, {{kind}}"}}},
		{title: "Errors", about: "Requests that failed.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"sum by (instance, op, kind) (rate(bakery_io_errors_total{" + of + "}" + every + ")) > 0", "{{instance}}: {{op}}, {{kind}}"}}},
		{title: "In flight", about: "Requests that the device has not answered yet.", kind: "timeseries", width: 8,
			queries: []query{{"bakery_io_in_flight{" + of + "}", "{{instance}}"}}},
		{title: "Oldest request", about: "If it grows, the device hangs.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"bakery_io_oldest_seconds{" + of + "}", "{{instance}}"}}},
		{title: "Clients' file descriptors", about: "Share of the limit. Beyond it clients are refused.", unit: "percentunit", kind: "timeseries", width: 8,
			queries: []query{{"bakery_client_descriptors{" + of + "} / bakery_client_descriptors_limit{" + of + "}", "{{instance}}"}}},
	}},
	{"Processes", 7, []panel{
		{title: "Memory", about: "Resident.", unit: "bytes", kind: "timeseries", width: 6,
			queries: []query{{`process_resident_memory_bytes{job="bakeryd",` + of + "}", "{{instance}}"}}},
		{title: "Processor", about: "Share of one processor.", unit: "percentunit", kind: "timeseries", width: 6,
			queries: []query{{`rate(process_cpu_seconds_total{job="bakeryd",` + of + "}" + every + ")", "{{instance}}"}}},
		{title: "Hosts", about: "Lockspaces, host ids and versions.", kind: "table", width: 12,
			queries: []query{{"bakery_lockspace_info{" + of + "}", ""}, {"bakery_build_info{" + of + "}", ""}}},
	}},
}

// quantiles returns the queries for quantiles of a histogram over all selected hosts.
func quantiles(name string) (all []query) {
	for _, q := range []string{"0.5", "0.9", "0.99"} {
		all = append(all, query{"histogram_quantile(" + q + ", sum by (le) (rate(" + name + "_bucket{" + of + "}" + every + ")))", "quantile " + q})
	}
	return all
}

func perGrant(name string) string {
	sum := func(n string) string { return "sum by (lock) (rate(" + n + "{" + of + "}" + every + "))" }
	return "topk(10, " + sum(name) + " / " + sum("bakery_lock_grants_total") + " > 0)"
}
