package metrics

import "github.com/prometheus/client_golang/prometheus"

// described lists all metrics. A _total begins at 0 with bakeryd, not with a term of membership.
// Times are in seconds.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("bakery_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// Of bakeryd and its host.
var (
	buildInfo        = describe("build_info", "The bakeryd that runs: 1.", "version", "goversion")
	lockspaceInfo    = describe("lockspace_info", "The lockspace and the identity of the host in it: 1.", "lockspace", "uuid", "device", "host_id", "host_name")
	hostState        = describe("state", "1 for the state of the host: joining, live, leaving, or lost (its lease).", "state")
	joined           = describe("joined", "Whether the host is in its lockspace: 1 or 0.")
	descriptors      = describe("client_descriptors", "File descriptors in use by clients.")
	descriptorsLimit = describe("client_descriptors_limit", "File descriptors available to clients. Further ones are refused.")
	sessions         = describe("sessions", "Clients that hold a lock or wait for one, over the socket.")
	refused          = describe("refused_total", "Requests that were refused, by the code of the error.", "code")
)

// Of the lease.
var (
	leaseSeconds    = describe("lease_seconds", "Length of a lease, as formatted.")
	leaseLeft       = describe("lease_left_seconds", "Remaining time of the lease without a renewal; 0: it is over.")
	renewals        = describe("lease_renewals_total", "Renewals of the lease.")
	renewalFailures = describe("lease_renewal_failures_total", "Reads and writes for the lease that failed; they are retried.")
	renewalSeconds  = describe("lease_renewal_duration_seconds", "Time that a renewal took: a read of the host table and a write.")
	leasesLost      = describe("leases_lost_total", "Leases that were lost, with all their holds.")
	joins           = describe("joins_total", "Times that the host joined the lockspace; resumed: with the lease of the previous bakeryd.", "resumed")
)

// Of other hosts.
var (
	hosts           = describe("hosts", "Hosts that ever joined, by their state as seen by this one.", "health")
	deaths          = describe("host_deaths_total", "Hosts declared dead, by the author of the verdict: this one itself, or another.", "by")
	fenced          = describe("hosts_fenced_total", "Hosts that this one cut off from the device.")
	fencingFailures = describe("fencing_failures_total", "Attempts to cut a host off that failed.")
	recoveries      = describe("recoveries_total", "Times that the lock of a dead host no longer blocked a client of this one.")
	evictions       = describe("evictions_total", "Evictions by operators of this host.")
)

// Of locks.
var (
	grants      = describe("grants_total", "Locks granted to clients of this host.")
	handoffs    = describe("handoffs_total", "Grants handed over from another client of this host, without disk IO.")
	waitSeconds = describe("wait_duration_seconds", "Time that clients waited for locks, for each grant.")
	holdSeconds = describe("hold_duration_seconds", "Time that clients held locks, for each hold.")
	holding     = describe("holding", "Clients of this host that hold a lock.")
	waiting     = describe("waiting", "Clients of this host that wait for a lock.")
	longestWait = describe("longest_wait_seconds", "Age of the longest present wait of a client; 0: no client waits.")

	lockGrants   = describe("lock_grants_total", "Grants of a lock; an empty name: all locks without their own series.", "lock")
	lockHandoffs = describe("lock_handoffs_total", "Handoffs of a lock inside this host.", "lock")
	lockWaited   = describe("lock_wait_seconds_total", "Time that clients waited for a lock for each grant.", "lock")
	lockHeld     = describe("lock_hold_seconds_total", "Time that a lock was held, by holds that are over.", "lock")
	lockHolding  = describe("lock_holding", "Clients of this host that hold a lock.", "lock")
	lockWaiting  = describe("lock_waiting", "Clients of this host that wait for a lock.", "lock")
)

// Of the device.
var (
	ioSeconds  = describe("io_duration_seconds", "Time that requests to the device took, including failed ones.", "op", "kind")
	ioErrors   = describe("io_errors_total", "Requests to the device that failed.", "op", "kind")
	ioInFlight = describe("io_in_flight", "Requests to the device that are under way.")
	ioOldest   = describe("io_oldest_seconds", "Age of the oldest request under way: it shows a hanging device.")
)
