package registry

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
)

// TestRegistry_AnySequence_KeepsItsInvariants: random clients register, acquire, convert, release and end. The outcomes
// of what takes time arrive later, in any order.
func TestRegistry_AnySequence_KeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, _, _ := joined(t)
		var underWay []func() // outcomes
		later := func(f func()) { underWay = append(underWay, f) }
		one := func(list []*Client, label string) *Client {
			if len(list) == 0 {
				return nil
			}
			return rapid.SampledFrom(list).Draw(t, label)
		}
		anyFlags := rapid.SampledFrom([]uint32{0, wire.ResShared, wire.ResShared, wire.ResPersistent, wire.ResShared | wire.ResPersistent})
		anyName := rapid.SampledFrom([]string{"x", "x", "y"})
		letGo := func(res *Resource) { later(func() { r.Drop(res) }) }
		active := func() (idle []*Client) {
			return slices.DeleteFunc(r.All(), func(c *Client) bool { return c.Active != 0 })
		}
		// These are frequent, so that two clients have a resource at the same time in many sequences.
		acquire := func(t *rapid.T) {
			c := one(active(), "client")
			if c == nil || c.Begin(wire.Acquire) != none {
				return
			}
			flags := rapid.SampledFrom([]uint32{0, 0, wire.AcquireLVB, wire.AcquireOrphan, wire.AcquireOrphanOnly}).Draw(t, "flags")
			res, fresh, code := r.BeginAcquire(c, resource(anyName.Draw(t, "name"), anyFlags.Draw(t, "resource")), flags)
			switch ok := rapid.Bool().Draw(t, "has it"); {
			case code != none:
				c.Active = 0
			case fresh:
				later(func() {
					c.Active = 0
					if !ok {
						r.Drop(res)
						return
					}
					res.State, res.Hold = Present, hold(res.Name)
				})
			case ok:
				c.Active = 0
			default: // another resource of the request is not free
				later(func() {
					c.Active = 0
					if r.Withdraw(c, res) {
						letGo(res)
					}
				})
			}
		}
		outcome := func(t *rapid.T) {
			if len(underWay) > 0 {
				i := rapid.IntRange(0, len(underWay)-1).Draw(t, "outcome")
				f := underWay[i]
				underWay = slices.Delete(underWay, i, i+1)
				f()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s, code := r.BeginAdd(lockspace("ls", 1), 10)
				if code == none {
					ok := rapid.Bool().Draw(t, "joined")
					later(func() {
						removed := s.State == Removing
						s.State, s.Hold = Present, hold("ls")
						if removed || !ok {
							delete(r.Spaces, s.Name)
						}
					})
				}
			},
			"remove": func(t *rapid.T) {
				s, was, code := r.BeginRemove(lockspace("ls", 1), rapid.Bool().Draw(t, "unused"))
				if code == none && was == Present {
					var leave func()
					leave = func() {
						if r.Blocked(s) != "" {
							later(leave)
							return
						}
						for _, res := range r.BeginReleaseOrphans(Key{Lockspace: "ls"}) {
							r.Drop(res)
						}
						delete(r.Spaces, "ls")
					}
					later(leave)
				}
			},
			"register": func(*rapid.T) {
				if len(r.Clients) < 4 {
					r.Register(&Client{Process: process.ID{PID: len(r.Clients)}})
				}
			},
			"acquire": acquire, "acquire as well": acquire,
			"convert": func(t *rapid.T) {
				if c := one(active(), "client"); c != nil {
					want := resource(anyName.Draw(t, "name"), anyFlags.Draw(t, "resource"))
					if res, code := r.BeginConvert(c, want); code == none {
						require.Equal(t, none, c.Begin(wire.Convert))
						shared := res.Shared != rapid.Bool().Draw(t, "converted")
						later(func() {
							res.EndConvert(shared)
							c.Active = 0
						})
					}
				}
			},
			"release": func(t *rapid.T) {
				if c := one(active(), "client"); c != nil {
					if res, code := r.Has(c, Key{"ls", anyName.Draw(t, "name")}); code == none && r.Undo(c, res) {
						letGo(res)
					}
				}
			},
			"release orphans": func(*rapid.T) {
				for _, res := range r.BeginReleaseOrphans(Key{Lockspace: "ls"}) {
					letGo(res)
				}
			},
			"end": func(t *rapid.T) {
				if c := one(active(), "client"); c != nil {
					for _, res := range r.Gone(c.ID) {
						letGo(res)
					}
				}
			},
			"outcome": outcome, "another outcome": outcome, "one more outcome": outcome,
			"restart": func(*rapid.T) {
				// what is under way would be a problem of the next process, which this test does not have
				if len(underWay) == 0 && r.Save() != nil {
					next, err := Load(r.Save())
					require.NoError(t, err)
					next.last = r.last // an id of a client that has gone may be used again
					require.Equal(t, r, next)
					r = next
				}
			},
			"": func(t *rapid.T) { checkInvariants(t, r) },
		})
	})
}

func checkInvariants(t *rapid.T, r *Registry) {
	for key, res := range r.Resources {
		require.Equal(t, key, res.Key())
		if !res.Shared {
			require.LessOrEqual(t, len(res.Users), 1, "%v is exclusive", key)
		}
		for _, id := range res.Users {
			require.Contains(t, r.Clients, id, "%v has a user that is no client", key)
		}
		if res.Orphan() {
			require.True(t, res.Persistent, "%v is an orphan and not persistent", key)
		}
		if len(res.Users) > 0 && res.State != Adding {
			require.NotEqual(t, Removing, res.State, "%v is being removed and has users", key)
			require.NotNil(t, r.Spaces[key.Lockspace], "%v is of a lockspace that has gone", key)
		}
	}
	for id, c := range r.Clients {
		require.Equal(t, id, c.ID)
	}
}
