// Package access decides who may do what. It knows users, groups, actions and names of locks; it never knows a
// connection, a file or a clock: who asks is found out by package daemon (caller.go), which also reads the policy file.
// Begin with Decide; the policy file is in policy.go, its patterns are in pattern.go.
//
// # Invariants
//
//   - ONLY THE KERNEL SAYS WHO ASKS: nothing that a client sends is part of a Caller.
//   - NOTHING BY DEFAULT: with a policy, who is not named in it may look, and nothing else.
//   - NO ONE IS NOBODY: users that have no number here all look the same, so that none of them is given anything.
package access

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// Action is what somebody wants to do.
type Action uint8

// The actions. The zero value is none, and nobody may do it.
const (
	Look    Action = iota + 1 // at hosts, locks, values and events
	Lock                      // take the lock, or wait for it; it is created on first use
	Create                    // create the lock
	Request                   // ask those who hold the lock for it
	Change                    // the mode or the value, under a hold; whose that is its session says
	Remove                    // remove the lock
	Evict                     // have a host declared dead, or leave
	Meet                      // write to the disk to see whether another host sees it
	Floor                     // keep the device busy to measure it
)

// actions have a name, what they are for people, and what comes before the lock that they are about.
var actions = map[Action]struct{ name, text, of string }{
	Look: {"look", "look", " at "}, Lock: {"lock", "lock", " "}, Create: {"create", "create", " "}, Request: {"request", "request", " "},
	Change: {"change", "change the hold", " of "}, Remove: {"remove", "remove", " "}, Evict: {"evict", "evict a host", " with "},
	Meet: {"meet", "check the disk with another host", " by "}, Floor: {"floor", "measure the device", " by "},
}

// Actions are all of them, in the order above.
func Actions() []Action {
	return []Action{Look, Lock, Create, Request, Change, Remove, Evict, Meet, Floor}
}

// String is the name of the action, as logs and metrics have it.
func (a Action) String() string {
	if a, ok := actions[a]; ok {
		return a.name
	}
	return "action " + strconv.Itoa(int(a))
}

// Caller is who asks, as the kernel has it of the moment when the connection was made.
type Caller struct {
	UID, GID int // -1: not known
	Groups   []int
	PID      int // 0: not known here; for people
}

// Refusal is why somebody may not do something.
type Refusal struct {
	Caller Caller
	User   string // the caller's name, for people; empty: not known
	Action Action
	Lock   string // empty: it is about none
	Reason string
	Remedy string

	allowable bool // by a line of the policy, which is the remedy
}

// Hint is what to do about it.
func (r *Refusal) Hint() string {
	if !r.allowable {
		return r.Remedy
	}
	user := r.User
	if user == "" {
		user = strconv.Itoa(r.Caller.UID)
	}
	return fmt.Sprintf("the line \"allow user %s %s\" there would, and then systemctl reload bakeryd", user, Escape(r.Lock))
}

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
		return "a user who is not known"
	case r.User != "":
		return fmt.Sprintf("user %s (uid %d)", r.User, r.Caller.UID)
	}
	return fmt.Sprintf("uid %d", r.Caller.UID)
}

// Unwrap makes errors.Is find api.ErrForbidden.
func (r *Refusal) Unwrap() error { return api.ErrForbidden }

// Rules are what there is to decide by.
type Rules struct {
	Owner  int     // bakeryd's own user
	Policy *Policy // nil: there is none

	// NobodyUID and NobodyGID are what the kernel shows of users and groups that have no number in bakeryd's user
	// namespace; -1: all have one.
	NobodyUID, NobodyGID int
}

// Privileged tells whether a caller may do everything: root and bakeryd's own user.
func (r Rules) Privileged(c Caller) bool {
	return c.UID == 0 || c.UID >= 0 && c.UID == r.Owner && c.UID != r.NobodyUID
}

// Decide is nil, or the *Refusal that says why not. That the hold of a Change is the caller's own is left to who has it.
func (r Rules) Decide(c Caller, a Action, lock string) error {
	if r.Privileged(c) || a == Look {
		return nil
	}
	no := &Refusal{Caller: c, Action: a, Lock: lock}
	switch {
	case c.UID < 0:
		no.Reason, no.Remedy = "its connection does not say who it is", "connect anew"
	case a == Change:
		return nil
	case a == Lock || a == Create || a == Request:
		if r.Policy == nil || r.allows(c, lock) {
			return nil
		}
		r.explain(no)
	default:
		no.Reason, no.Remedy = "that is for root and the user of bakeryd", "run it as root"
	}
	return no
}

// explain says what is missing in the policy.
func (r Rules) explain(no *Refusal) {
	if no.Caller.UID == r.NobodyUID {
		no.Reason = fmt.Sprintf("uid %d stands for all users that have none where bakeryd runs", no.Caller.UID)
		no.Remedy = "run it as a user that is mapped into bakeryd's user namespace"
		return
	}
	no.Reason, no.allowable = "no line of "+r.Policy.path+" allows it", true
}

// allows tells whether the policy lets a caller have a lock.
func (r Rules) allows(c Caller, lock string) bool {
	if c.UID != r.NobodyUID && matches(r.Policy.users[c.UID], lock) {
		return true
	}
	return slices.ContainsFunc(append([]int{c.GID}, c.Groups...), func(gid int) bool {
		return gid >= 0 && gid != r.NobodyGID && matches(r.Policy.groups[gid], lock)
	})
}
