package main

const (
	of    = `instance=~"$instance"`
	every = "[$__rate_interval]"
)

var rows = []row{
	{"Hosts", 5, []panel{
		{title: "Answering", about: "Hosts whose bakeryd is in its lockspace.", kind: "stat", width: 4,
			queries: []query{{"sum(bakery_joined{" + of + "})", "joined"}}, colours: []step{{0, "red"}, {1, "green"}}},
		{title: "Least lease left", about: "A host renews six times within a lease. Below half of it something is wrong.", unit: "s", kind: "stat", width: 4,
			queries: []query{{"min(bakery_lease_left_seconds{" + of + "})", "left"}}},
		{title: "Dead hosts", about: "As the host sees it that sees most. Their locks are free.", kind: "stat", width: 4,
			queries: []query{{"max(bakery_hosts{" + of + `,health="dead"})`, "dead"}}, colours: []step{{0, "green"}, {1, "orange"}}},
		{title: "Silent hosts", about: "They do not renew, and are not declared dead yet.", kind: "stat", width: 4,
			queries: []query{{"max(bakery_hosts{" + of + `,health="silent"})`, "silent"}}, colours: []step{{0, "green"}, {1, "red"}}},
		{title: "Longest wait", about: "Of the clients that wait now.", unit: "s", kind: "stat", width: 4,
			queries: []query{{"max(bakery_longest_wait_seconds{" + of + "})", "waits"}}},
		{title: "Oldest request", about: "Under way to the device now. One that grows is a device that hangs.", unit: "s", kind: "stat", width: 4,
			queries: []query{{"max(bakery_io_oldest_seconds{" + of + "})", "oldest"}}, colours: []step{{0, "green"}, {1, "orange"}, {5, "red"}}},
	}},
	{"Leases", 8, []panel{
		{title: "Lease left", about: "By scrape. It falls from the whole lease to five sixths of it, and begins anew.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"bakery_lease_left_seconds{" + of + "}", "{{instance}}"}, {"max(bakery_lease_seconds{" + of + "}) / 2", "half a lease"}}},
		{title: "Renewals, p99", about: "From the begin of the read of the host table until the write is durable.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"histogram_quantile(0.99, sum by (instance, le) (rate(bakery_lease_renewal_duration_seconds_bucket{" + of + "}" + every + ")))", "{{instance}}"}}},
		{title: "Renewals", about: "And requests for the lease that failed, which are tried again.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"rate(bakery_lease_renewals_total{" + of + "}" + every + ")", "{{instance}}"},
				{"rate(bakery_lease_renewal_failures_total{" + of + "}" + every + ")", "{{instance}} failed"}}},
		{title: "State", about: "Of each host, by itself.", kind: "timeseries", width: 8, max: 1,
			queries: []query{{"bakery_state{" + of + "} == 1", "{{instance}} {{state}}"}}},
		{title: "Hosts by health", about: "Greatest number that any host sees.", kind: "timeseries", width: 8, stacked: true,
			queries: []query{{"max by (health) (bakery_hosts{" + of + "})", "{{health}}"}}},
		{title: "What happened to hosts", about: "Within each interval.", kind: "timeseries", width: 8,
			queries: []query{
				{"increase(bakery_leases_lost_total{" + of + "}" + every + ")", "{{instance}} lost its lease"},
				{"increase(bakery_joins_total{" + of + "}" + every + ")", "{{instance}} joined, resumed {{resumed}}"},
				{"increase(bakery_host_deaths_total{" + of + `,by="self"}` + every + ")", "{{instance}} declared a host dead"},
				{"increase(bakery_host_deaths_total{" + of + `,by="other"}` + every + ")", "{{instance}} heard of a death"},
				{"increase(bakery_hosts_fenced_total{" + of + "}" + every + ")", "{{instance}} fenced a host"},
				{"increase(bakery_fencing_failures_total{" + of + "}" + every + ")", "{{instance}} failed to fence"},
				{"increase(bakery_recoveries_total{" + of + "}" + every + ")", "{{instance}} went on without a dead host"},
				{"increase(bakery_evictions_total{" + of + "}" + every + ")", "{{instance}} evicted a host"},
			}},
	}},
	{"Locks", 8, []panel{
		{title: "Grants", about: "Handoffs are those that pass from client to client of one host without the disk.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"rate(bakery_grants_total{" + of + "}" + every + ")", "{{instance}}"},
				{"rate(bakery_handoffs_total{" + of + "}" + every + ")", "{{instance}} handoffs"}}},
		{title: "Waits", about: "Of clients that got their lock.", unit: "s", kind: "timeseries", width: 8, queries: quantiles("bakery_wait_duration_seconds")},
		{title: "Holds", about: "Of those that are over.", unit: "s", kind: "timeseries", width: 8, queries: quantiles("bakery_hold_duration_seconds")},
		{title: "Clients", about: "That hold a lock and that wait for one.", kind: "timeseries", width: 8,
			queries: []query{{"bakery_holding{" + of + "}", "{{instance}} hold"}, {"bakery_waiting{" + of + "}", "{{instance}} wait"},
				{"bakery_sessions{" + of + "}", "{{instance}} by the socket"}}},
		{title: "Longest wait", about: "Of the clients that wait now.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"bakery_longest_wait_seconds{" + of + "}", "{{instance}}"}}},
		{title: "Refused", about: "By the code of the error: busy and timeout are what clients asked for.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"sum by (code) (rate(bakery_refused_total{" + of + "}" + every + ")) > 0", "{{code}}"}}},
	}},
	{"Each lock", 8, []panel{
		{title: "Grants", about: "Those locks that are granted most. All that have no counts of their own are one, without a name.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"topk(10, sum by (lock) (rate(bakery_lock_grants_total{" + of + "}" + every + ")))", "{{lock}}"},
				{"topk(10, sum by (lock) (rate(bakery_lock_handoffs_total{" + of + "}" + every + ")) > 0)", "{{lock}} handoffs"}}},
		{title: "Mean wait", about: "Of clients that got the lock.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{perGrant("bakery_lock_wait_seconds_total"), "{{lock}}"}}},
		{title: "Part of the time held", about: "By holds that are over: one that lasts shows when it ends.", unit: "percentunit", kind: "timeseries", width: 8,
			queries: []query{{"topk(10, sum by (lock) (rate(bakery_lock_hold_seconds_total{" + of + "}" + every + ")))", "{{lock}}"}}},
		{title: "Waiting", about: "Clients, by lock.", kind: "timeseries", width: 12,
			queries: []query{{"topk(10, sum by (lock) (bakery_lock_waiting{" + of + "}) > 0)", "{{lock}}"}}},
		{title: "Holding", about: "Clients, by lock.", kind: "timeseries", width: 12,
			queries: []query{{"topk(10, sum by (lock) (bakery_lock_holding{" + of + "}) > 0)", "{{lock}}"}}},
	}},
	{"Device", 8, []panel{
		{title: "Requests, p99", about: "Of leases, locks, and reads of the whole lockspace for who looks.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"histogram_quantile(0.99, sum by (op, kind, le) (rate(bakery_io_duration_seconds_bucket{" + of + "}" + every + ")))", "{{op}}, {{kind}}"}}},
		{title: "Requests", about: "By what they are for.", unit: "iops", kind: "timeseries", width: 8,
			queries: []query{{"sum by (op, kind) (rate(bakery_io_duration_seconds_count{" + of + "}" + every + "))", "{{op}}, {{kind}}"}}},
		{title: "Errors", about: "Requests that failed.", unit: "ops", kind: "timeseries", width: 8,
			queries: []query{{"sum by (instance, op, kind) (rate(bakery_io_errors_total{" + of + "}" + every + ")) > 0", "{{instance}}: {{op}}, {{kind}}"}}},
		{title: "Under way", about: "Requests that the device has not answered yet.", kind: "timeseries", width: 8,
			queries: []query{{"bakery_io_in_flight{" + of + "}", "{{instance}}"}}},
		{title: "Oldest request", about: "One that grows is a device that hangs.", unit: "s", kind: "timeseries", width: 8,
			queries: []query{{"bakery_io_oldest_seconds{" + of + "}", "{{instance}}"}}},
		{title: "Clients' file descriptors", about: "Of those that there are for them: those beyond are refused.", unit: "percentunit", kind: "timeseries", width: 8,
			queries: []query{{"bakery_client_descriptors{" + of + "} / bakery_client_descriptors_limit{" + of + "}", "{{instance}}"}}},
	}},
	{"Processes", 7, []panel{
		{title: "Memory", about: "Resident.", unit: "bytes", kind: "timeseries", width: 6,
			queries: []query{{`process_resident_memory_bytes{job="bakeryd",` + of + "}", "{{instance}}"}}},
		{title: "Processor", about: "Part of one.", unit: "percentunit", kind: "timeseries", width: 6,
			queries: []query{{`rate(process_cpu_seconds_total{job="bakeryd",` + of + "}" + every + ")", "{{instance}}"}}},
		{title: "Who is who", about: "Lockspaces, host ids and versions.", kind: "table", width: 12,
			queries: []query{{"bakery_lockspace_info{" + of + "}", ""}, {"bakery_build_info{" + of + "}", ""}}},
	}},
}

// quantiles of a histogram over all hosts that are looked at.
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
