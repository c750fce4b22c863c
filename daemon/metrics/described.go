package metrics

import "github.com/prometheus/client_golang/prometheus"

// described are all metrics. A _total begins at 0 with bakeryd, whatever term of membership; times are in seconds.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("bakery_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// Of bakeryd and its host.
var (
	buildInfo        = describe("build_info", "The bakeryd that runs: 1.", "version", "goversion")
	lockspaceInfo    = describe("lockspace_info", "The lockspace that the host is in, and as whom: 1.", "lockspace", "uuid", "device", "host_id", "host_name")
	hostState        = describe("state", "1 for the state of the host: joining, live, leaving, or lost, if its lease is.", "state")
	joined           = describe("joined", "Whether the host is in its lockspace: 1 or 0.")
	descriptors      = describe("client_descriptors", "File descriptors that clients have.")
	descriptorsLimit = describe("client_descriptors_limit", "File descriptors that there are for clients. Those beyond are refused.")
	sessions         = describe("sessions", "Clients that hold a lock or wait for one, by the socket.")
	refused          = describe("refused_total", "Requests that were refused, by the code of the error.", "code")
)

// Of the lease.
var (
	leaseSeconds    = describe("lease_seconds", "Length of a lease, as the lockspace was formatted.")
	leaseLeft       = describe("lease_left_seconds", "For how long the lease runs if it is not renewed; 0: it is over.")
	renewals        = describe("lease_renewals_total", "Renewals of the lease.")
	renewalFailures = describe("lease_renewal_failures_total", "Reads and writes for the lease that failed; they are tried again.")
	renewalSeconds  = describe("lease_renewal_duration_seconds", "Time that a renewal took: a read of the host table and a write.")
	leasesLost      = describe("leases_lost_total", "Leases that were lost, and all that was held with them.")
	joins           = describe("joins_total", "Times that the host joined the lockspace; resumed: with the lease of the bakeryd before.", "resumed")
)

// Of other hosts.
var (
	hosts           = describe("hosts", "Hosts that ever joined, by what this one knows of them.", "health")
	deaths          = describe("host_deaths_total", "Hosts that were declared dead while this one looked on, by whom: this one itself, or another.", "by")
	fenced          = describe("hosts_fenced_total", "Hosts that this one cut off from the device.")
	fencingFailures = describe("fencing_failures_total", "Attempts to cut a host off that failed.")
	recoveries      = describe("recoveries_total", "Times that a client waited for a host that died, and went on without it.")
	evictions       = describe("evictions_total", "Evictions by operators of this host.")
)

// Of locks.
var (
	grants      = describe("grants_total", "Locks granted to clients of this host.")
	handoffs    = describe("handoffs_total", "Grants that came from another client of this host at once, without the disk.")
	waitSeconds = describe("wait_duration_seconds", "Time that clients waited for a lock that they got.")
	holdSeconds = describe("hold_duration_seconds", "Time for which clients held a lock.")
	holding     = describe("holding", "Clients of this host that hold a lock.")
	waiting     = describe("waiting", "Clients of this host that wait for a lock.")
	longestWait = describe("longest_wait_seconds", "For how long the client waits that has waited longest; 0: nobody waits.")

	lockGrants   = describe("lock_grants_total", "Grants of a lock; without a name those of all locks that are not shown.", "lock")
	lockHandoffs = describe("lock_handoffs_total", "Handoffs of a lock inside this host.", "lock")
	lockWaited   = describe("lock_wait_seconds_total", "Time that clients waited for a lock until they got it.", "lock")
	lockHeld     = describe("lock_hold_seconds_total", "Time for which a lock was held, by holds that are over.", "lock")
	lockHolding  = describe("lock_holding", "Clients of this host that hold a lock.", "lock")
	lockWaiting  = describe("lock_waiting", "Clients of this host that wait for a lock.", "lock")
)

// Of the device.
var (
	ioSeconds  = describe("io_duration_seconds", "Time that requests to the device took, those included that failed.", "op", "kind")
	ioErrors   = describe("io_errors_total", "Requests to the device that failed.", "op", "kind")
	ioInFlight = describe("io_in_flight", "Requests to the device that are under way.")
	ioOldest   = describe("io_oldest_seconds", "For how long the oldest request has been under way: a device that hangs shows here.")
)
