// Package access decides which callers may do what. It knows users, groups, actions and names of
// locks. It never knows a connection, a file or a clock: package server identifies callers, and
// package policy reads the policy file. Begin with Decide. The form of that file is in policy.go,
// its patterns are in pattern.go.
//
// # Invariants
//
//   - KERNEL-IDENTITY: a Caller comes from the kernel. It contains nothing that a client has sent.
//   - NOTHING BY DEFAULT: with a policy, a user that it does not name may look, and nothing else.
//   - UNMAPPED-USERS: users that have no number here all look the same, so none of them is
//     granted anything.
package access

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// Action is an operation that needs permission.
type Action uint8

// The actions. The zero value is none, and no user may do it.
const (
	Look    Action = iota + 1 // at hosts, locks, values and events
	Lock                      // take the lock, or wait for it; the first use creates it
	Create                    // create the lock
	Request                   // ask the holders to release the lock
	Change                    // change the mode or the value, under a hold; its session identifies the owner
	Remove                    // remove the lock
	Evict                     // declare a host dead, or ask it to leave
	Meet                      // write to the disk to check whether another host sees it
	Floor                     // keep the device busy to measure it
)

// actions has for each Action its name, its text for people, and the preposition before a lock.
var actions = map[Action]struct{ name, text, of string }{
	Look: {"look", "look", " at "}, Lock: {"lock", "lock", " "}, Create: {"create", "create", " "}, Request: {"request", "request", " "},
	Change: {"change", "change the hold", " of "}, Remove: {"remove", "remove", " "}, Evict: {"evict", "evict a host", " with "},
	Meet: {"meet", "check the disk with another host", " by "}, Floor: {"floor", "measure the device", " by "},
}

// String returns the name of the action, as in logs.
func (a Action) String() string {
	if a, ok := actions[a]; ok {
		return a.name
	}
	return "action " + strconv.Itoa(int(a))
}

// Caller is the client's user, according to the kernel when the connection was made.
type Caller struct {
	UID, GID int // -1: unknown
	Groups   []int
	PID      int // 0: unknown here; for people
}

// Refusal is the reason for which a caller may not do something.
type Refusal struct {
	Caller Caller
	User   string // the caller's name, for people; empty: unknown. SetUser sets it
	Action Action
	Lock   string // empty: not about a lock
	Reason string
	Remedy string

	policy *Policy // that has no line for it; Remedy comes before adding one. nil if no line could allow it
}

// Hint returns an instruction for the user or operator.
func (r *Refusal) Hint() string {
	if r.policy == nil || !r.policy.InForce() {
		return r.Remedy
	}
	user := r.User
	if user == "" {
		user = strconv.Itoa(r.Caller.UID)
	}
	line := fmt.Sprintf("the line \"allow user %s %s\"", user, Escape(r.Lock))
	if r.Remedy != "" {
		return r.Remedy + "; if it is refused even then, add " + line
	}
	return asRoot + "add " + line + " to it, then " + reload
}

// SetUser sets the caller's name. The policy may have a line for a user of that name that did not exist when the
// file was read.
func (r *Refusal) SetUser(name string) {
	r.User = name
	if r.policy == nil || name == "" {
		return
	}
	for _, m := range r.policy.missing {
		if m.name == name && matches(m.patterns, r.Lock) {
			r.Reason = fmt.Sprintf("line %d of %s allows it, but user %s did not exist when the file was read", m.line, r.policy.path, name)
			r.Remedy, r.policy = Reload, nil
			return
		}
	}
}

// SetChanged records that the policy file has changed since it was read.
func (r *Refusal) SetChanged() {
	if r.policy != nil {
		r.Reason += "; the file has changed since it was read"
		r.Remedy = Reload
	}
}

// OfPolicy reports whether a line of the policy could allow it.
func (r *Refusal) OfPolicy() bool { return r.policy != nil }

const (
	// Reload is the remedy for a policy file that has changed since it was read.
	Reload = asRoot + reload

	asRoot = "as root: "
	reload = "run systemctl reload bakeryd"
)

func (r *Refusal) Error() string {
	text := r.who() + " may not " + actions[r.Action].text
	if r.Lock != "" {
		text += actions[r.Action].of + strconv.Quote(r.Lock)
	}
	return text + ": " + r.Reason
}

func (r *Refusal) who() string {
	switch {
	case r.Caller.UID < 0:
		return "an unknown user"
	case r.User != "":
		return fmt.Sprintf("user %s (uid %d)", r.User, r.Caller.UID)
	}
	return fmt.Sprintf("uid %d", r.Caller.UID)
}

// Unwrap returns api.ErrForbidden.
func (r *Refusal) Unwrap() error { return api.ErrForbidden }

// Rules hold the facts that decisions depend on.
type Rules struct {
	Owner  int     // bakeryd's own user
	Policy *Policy // nil: none

	// NobodyUID and NobodyGID are the kernel's numbers for users and groups that are not mapped
	// into bakeryd's user namespace; -1: all are mapped.
	NobodyUID, NobodyGID int
}

// Privileged reports whether a caller may do everything: root and bakeryd's own user.
func (r Rules) Privileged(c Caller) bool {
	return c.UID == 0 || c.UID >= 0 && c.UID == r.Owner && c.UID != r.NobodyUID
}

// Decide returns nil, or a *Refusal with the reason. For Change, the caller of Decide checks that
// the hold is the client's.
func (r Rules) Decide(c Caller, a Action, lock string) error {
	if r.Privileged(c) || a == Look {
		return nil
	}
	no := &Refusal{Caller: c, Action: a, Lock: lock}
	switch {
	case c.UID < 0:
		no.Reason, no.Remedy = "its connection shows no user", "connect again"
	case a == Change:
		return nil
	case a == Lock || a == Create || a == Request:
		if r.Policy == nil || r.allows(c, lock) {
			return nil
		}
		r.explain(no)
	default:
		no.Reason, no.Remedy = "only root and the user of bakeryd may", "run it as root"
	}
	return no
}

// explain sets the reason and remedy of a refusal by the policy.
func (r Rules) explain(no *Refusal) {
	if no.Caller.UID == r.NobodyUID {
		no.Reason = fmt.Sprintf("uid %d stands for all users outside of bakeryd's user namespace", no.Caller.UID)
		no.Remedy = "run it as a user that is mapped into bakeryd's user namespace"
		return
	}
	fault := r.Policy.Fault
	if fault == nil {
		no.Reason, no.policy = "no line of "+r.Policy.path+" allows it", r.Policy
		return
	}
	what, why := fault.Text()
	if why != "" {
		what += ", " + why
	}
	no.Remedy, no.policy = fault.Remedy(), r.Policy
	if !r.Policy.InForce() {
		no.Reason = what + "; until it is fixed and reloaded, only root and bakeryd's own user have access"
		return
	}
	no.Reason = what + "; the policy that was read before stays in force, and none of its lines allows it"
}

// allows reports whether the policy grants a lock to a caller.
func (r Rules) allows(c Caller, lock string) bool {
	if c.UID != r.NobodyUID && matches(r.Policy.users[c.UID], lock) {
		return true
	}
	return slices.ContainsFunc(append([]int{c.GID}, c.Groups...), func(gid int) bool {
		return gid >= 0 && gid != r.NobodyGID && matches(r.Policy.groups[gid], lock)
	})
}
