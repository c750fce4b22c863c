package access

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
)

func allActions() []Action {
	return []Action{Look, Lock, Create, Request, Change, Remove, Evict, Meet, Floor}
}

const owner = 999

var (
	alice = Caller{UID: 1000, GID: 1000, PID: 7}
	bob   = Caller{UID: 1001, GID: 1001, Groups: []int{60, 50}, PID: 8}
	root  = Caller{UID: 0, GID: 0, Groups: []int{0}}
	self  = Caller{UID: owner, GID: owner}
	lost  = Caller{UID: -1, GID: -1}
)

func rules(p *Policy) Rules { return Rules{Owner: owner, Policy: p, NobodyUID: -1, NobodyGID: -1} }

// TestWhoMayDoWhat checks the table of packaging/docs/permissions.md.
func TestWhoMayDoWhat(t *testing.T) {
	policy := parse(t, "allow user alice backup-*\nallow group ops web db/*\n")
	for _, c := range []struct {
		name   string
		rules  Rules
		caller Caller
		lock   string
		may    []Action
	}{
		{"anybody, without a policy", rules(nil), alice, "x", []Action{Look, Lock, Create, Request, Change}},
		{"root, without a policy", rules(nil), root, "x", allActions()},
		{"bakeryd's own user, without a policy", rules(nil), self, "x", allActions()},
		{"nobody knows who, without a policy", rules(nil), lost, "x", []Action{Look}},
		{"a name of hers", rules(policy), alice, "backup-1", []Action{Look, Lock, Create, Request, Change}},
		{"a name of others", rules(policy), alice, "web", []Action{Look, Change}},
		{"by a supplementary group", rules(policy), bob, "db/1", []Action{Look, Lock, Create, Request, Change}},
		{"by the primary group", rules(policy), Caller{UID: 5, GID: 50}, "web", []Action{Look, Lock, Create, Request, Change}},
		{"a user of that number is no group", rules(policy), Caller{UID: 50, GID: 5}, "web", []Action{Look, Change}},
		{"a group of that number is no user", rules(policy), Caller{UID: 5, GID: 1000}, "backup-1", []Action{Look, Change}},
		{"root", rules(policy), root, "x", allActions()},
		{"bakeryd's own user", rules(policy), self, "x", allActions()},
		{"root's group is not root", rules(policy), Caller{UID: 5, GID: 0, Groups: []int{0}}, "web", []Action{Look, Change}},
		{"nobody knows who", rules(policy), lost, "web", []Action{Look}},
		{"an empty policy", rules(parse(t, "")), bob, "web", []Action{Look, Change}},
		{"an empty policy and root", rules(parse(t, "")), root, "web", allActions()},
	} {
		for _, a := range append(allActions(), 0, Action(200)) {
			err := c.rules.Decide(c.caller, a, c.lock)
			may := false
			for _, b := range c.may {
				may = may || a == b
			}
			privileged := c.rules.Privileged(c.caller)
			if may || privileged {
				require.NoError(t, err, "%s: %v", c.name, a)
				continue
			}
			var no *Refusal
			require.ErrorAs(t, err, &no, "%s: %v", c.name, a)
			require.ErrorIs(t, err, api.ErrForbidden)
			require.NotEmpty(t, no.Reason)
			require.NotEmpty(t, no.Hint())
			require.Equal(t, c.caller, no.Caller)
			require.Equal(t, a, no.Action)
		}
	}
}

// TestNobody: if bakeryd runs in a user namespace, all users that are not mapped into it look the
// same. bakeryd's own user may be one of them.
func TestNobody(t *testing.T) {
	p := parse(t, "allow user nobody *\nallow group nogroup *\nallow group ops *\n")
	stranger := Caller{UID: 65534, GID: 65534, Groups: []int{65534}}
	mapped := Rules{Owner: 65534, Policy: p, NobodyUID: 65534, NobodyGID: 65534}
	require.False(t, mapped.Privileged(stranger))
	var no *Refusal
	require.ErrorAs(t, mapped.Decide(stranger, Lock, "x"), &no)
	require.Equal(t, "uid 65534 stands for all users outside of bakeryd's user namespace", no.Reason)
	stranger.Groups = append(stranger.Groups, 50)
	require.NoError(t, mapped.Decide(stranger, Lock, "x"), "the group is mapped")

	stranger.Groups = nil
	whole := Rules{Owner: 65534, Policy: p, NobodyUID: -1, NobodyGID: -1}
	require.NoError(t, whole.Decide(stranger, Lock, "x"), "where all users have a number, nobody is one as any other")
	require.True(t, whole.Privileged(stranger))
}

func TestWhatARefusalSays(t *testing.T) {
	r := rules(parse(t, "allow user alice backup-*\n"))
	var no *Refusal
	require.ErrorAs(t, r.Decide(bob, Lock, "nightly *"), &no)
	require.EqualError(t, no, `uid 1001 may not lock "nightly *": no line of policy allows it`)
	require.Equal(t, `as root: add the line "allow user 1001 nightly\ \*" to it, then run systemctl reload bakeryd`, no.Hint())
	no.User = "bob"
	require.Equal(t, `as root: add the line "allow user bob nightly\ \*" to it, then run systemctl reload bakeryd`, no.Hint())
	require.EqualError(t, no, `user bob (uid 1001) may not lock "nightly *": no line of policy allows it`)
	require.EqualError(t, r.Decide(alice, Evict, ""), "uid 1000 may not evict a host: only root and the user of bakeryd may")
	require.EqualError(t, r.Decide(alice, Remove, "backup-1"), `uid 1000 may not remove "backup-1": only root and the user of bakeryd may`)
	require.EqualError(t, r.Decide(lost, Lock, "x"), `an unknown user may not lock "x": its connection shows no user`)
	require.False(t, errors.Is(errors.New("x"), api.ErrForbidden))
	for _, a := range allActions() {
		require.NotContains(t, a.String(), " ")
	}
}

// TestRefusal_FileNotInForce_NamesTheFault: a user must not be told to add a line that is already there.
func TestRefusal_FileNotInForce_NamesTheFault(t *testing.T) {
	const text = "# who\nallow user bob *\nalow user alice *\n"
	_, err := Parse("policy", []byte(text), here)
	var line *Fault
	require.ErrorAs(t, err, &line)
	gone := &Fault{Path: "policy", Err: fs.ErrNotExist}
	mode := &Fault{Path: "policy", Err: errors.New("has mode 0664, so others can write to it: chmod go-w")}
	former := parse(t, "allow user alice x\n")
	const want = "want allow user NAME PATTERN..., or allow group NAME PATTERN..."
	const nothing = "; until it is fixed and reloaded, only root and bakeryd's own user have access"
	const before = "; the policy that was read before stays in force, and none of its lines allows it"
	const add = `; if it is refused even then, add the line "allow user 1001 x"`
	for _, c := range []struct {
		policy       *Policy
		reason, hint string
	}{
		{(*Policy)(nil).Faulty(line), `the policy file policy is invalid, line 3: unknown word "alow": ` + want + nothing, asRoot + "fix line 3 of policy, then " + reload},
		{former.Faulty(line), `the policy file policy is invalid, line 3: unknown word "alow": ` + want + before, asRoot + "fix line 3 of policy, then " + reload + add},
		{(*Policy)(nil).Faulty(gone), "the policy file policy does not exist" + nothing, asRoot + "create policy, then " + reload},
		{former.Faulty(gone).Faulty(mode), "the policy file policy cannot be used, " + mode.Err.Error() + before, asRoot + "fix that, then " + reload + add},
	} {
		var no *Refusal
		require.ErrorAs(t, rules(c.policy).Decide(bob, Lock, "x"), &no)
		require.Equal(t, c.reason, no.Reason)
		require.Equal(t, c.hint, no.Hint())
		require.Equal(t, c.policy.InForce(), rules(c.policy).Decide(alice, Lock, "x") == nil)
		require.NoError(t, rules(c.policy).Decide(root, Lock, "x"))
	}
	require.Nil(t, former.Fault, "the policy itself stays as it was")
}

// TestRefusal_LineForUserThatDidNotExist_AsksForAReload: but only if that line allows the lock.
func TestRefusal_LineForUserThatDidNotExist_AsksForAReload(t *testing.T) {
	r := rules(parse(t, "\nallow user dave job-*\nallow group dave *\n"))
	for lock, hint := range map[string]string{"job-1": Reload, "other": `as root: add the line "allow user dave other" to it, then ` + reload} {
		var no *Refusal
		require.ErrorAs(t, r.Decide(Caller{UID: 1234, GID: 1234}, Lock, lock), &no)
		no.SetUser("dave")
		require.Equal(t, hint, no.Hint())
		require.Equal(t, lock == "job-1", no.Reason == "line 2 of policy allows it, but user dave did not exist when the file was read", no.Reason)
	}
}
