package registry

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/layout"
)

const none = wire.OK

var (
	again    = wire.Errno(syscall.EAGAIN)
	busy     = wire.Errno(syscall.EBUSY)
	exists   = wire.Errno(syscall.EEXIST)
	invalid  = wire.Errno(syscall.EINVAL)
	missing  = wire.Errno(syscall.ENOENT)
	noSpace  = wire.Errno(syscall.ENOSPC)
	orphaned = wire.Errno(syscall.EUCLEAN)
)

// hold returns a hold of bakeryd's.
func hold(session string) Hold { return Hold{Session: session, Token: layout.MakeTicket(7, 1)} }

// here is the place of lockspaces and resources in these tests.
func here(offset uint64) wire.Disk { return wire.Disk{Path: "/dev/x", Offset: offset} }

func lockspace(name string, id uint64) wire.Lockspace {
	return wire.Lockspace{Name: name, HostID: id, Disk: here(0)}
}

func resource(name string, flags uint32) wire.Resource {
	return wire.Resource{Lockspace: "ls", Name: name, Flags: flags, NumDisks: 1, Disks: []wire.Disk{here(1 << 20)}}
}

// joined returns a registry with lockspace ls and clients 1 and 2.
func joined(t require.TestingT) (r *Registry, a, b *Client) {
	r = New()
	s, code := r.BeginAdd(lockspace("ls", 1), 10)
	require.Equal(t, none, code)
	s.State, s.Hold = Present, hold("ls")
	a, b = &Client{Process: process.ID{PID: 10}}, &Client{Process: process.ID{PID: 20}}
	r.Register(a)
	r.Register(b)
	return r, a, b
}

// acquired has a client acquire a resource.
func acquired(t *testing.T, r *Registry, c *Client, want wire.Resource, flags uint32) *Resource {
	t.Helper()
	res, fresh, code := r.BeginAcquire(c, want, flags)
	require.Equal(t, none, code)
	if fresh {
		res.State, res.Hold = Present, hold(res.Name)
	}
	return res
}

func TestRegistry_Register_CountsUp(t *testing.T) {
	r, a, b := joined(t)
	require.Equal(t, []int{1, 2}, []int{a.ID, b.ID})
	require.Equal(t, []*Client{a, b}, r.All())
	same := &Client{Process: b.Process}
	r.Register(same)
	require.Same(t, b, r.ByPID(20), "the first of a process")
	r.Gone(b.ID)
	require.Same(t, same, r.ByPID(20))
	require.Nil(t, r.ByPID(30))
	next := &Client{}
	r.Register(next)
	require.Equal(t, 4, next.ID, "an id is not used again")
}

func TestClient_Begin_IsBusy(t *testing.T) {
	for _, test := range []struct {
		name   string
		active wire.Command
		kill   bool
		cmd    wire.Command
		want   wire.Code
	}{
		{"idle", 0, false, wire.Acquire, none},
		{"another command is under way", wire.Inquire, false, wire.Release, busy},
		{"being killed, acquires", 0, true, wire.Acquire, busy},
		{"being killed, releases", 0, true, wire.Release, none},
		{"being killed, asks", 0, true, wire.Inquire, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Client{Active: test.active, Killing: test.kill}
			require.Equal(t, test.want, c.Begin(test.cmd))
			if test.want == none {
				require.Equal(t, test.cmd, c.Active)
			} else {
				require.Equal(t, test.active, c.Active)
			}
		})
	}
}

func TestRegistry_Gone_ReleasesWhatNoOtherClientHas(t *testing.T) {
	r, a, b := joined(t)
	alone := acquired(t, r, a, resource("alone", 0), 0)
	persistent := acquired(t, r, a, resource("persistent", wire.ResPersistent), 0)
	both := acquired(t, r, a, resource("both", wire.ResShared), 0)
	twice := acquired(t, r, a, resource("twice", wire.ResShared), 0)
	acquired(t, r, a, resource("twice", wire.ResShared), 0)
	acquired(t, r, b, resource("both", wire.ResShared), 0)
	going := acquired(t, r, a, resource("being released", 0), 0)
	going.State = Removing
	require.Equal(t, []*Resource{alone, going, both, persistent, twice, twice}, r.Of(a.ID), "by name")
	require.Equal(t, []*Resource{alone, twice}, r.Gone(a.ID))
	require.Equal(t, []State{Removing, Removing}, []State{alone.State, twice.State})
	require.True(t, persistent.Orphan())
	require.Equal(t, []int{b.ID}, both.Users)
	require.Nil(t, r.Clients[a.ID])
	require.Empty(t, r.Gone(a.ID), "it is gone already")
}

// TestRegistry_Save_IsLoaded: what is under way is not in the text.
func TestRegistry_Save_IsLoaded(t *testing.T) {
	require.Nil(t, New().Save())
	r, a, b := joined(t)
	a.UID, a.GID, a.Groups, a.Name, a.Restrict = 1, 2, []int{3, 4}, "name", wire.RestrictSigkill
	a.KillPath, a.KillArgs, a.Killing = "/bin/x", "a b", true
	b.Process.Started = 99
	space := r.Spaces["ls"]
	space.Used, space.UsedByOrphans = true, true
	one := acquired(t, r, a, resource("one", wire.ResPersistent), wire.AcquireLVB)
	one.Nonce, one.Lver, one.Block = 1<<63+1, 1<<63+2, []byte("block")
	orphan := acquired(t, r, b, resource("orphan", wire.ResPersistent|wire.ResShared), 0)
	orphan.Users = []int{}
	acquired(t, r, b, resource("two", wire.ResShared), 0)
	_, fresh, code := r.BeginAcquire(b, resource("under way", 0), 0)
	require.True(t, fresh)
	require.Equal(t, none, code)
	_, code = r.BeginAdd(wire.Lockspace{Name: "also under way", HostID: 1, Disk: here(8 << 20)}, 10)
	require.Equal(t, none, code)

	space.Dead = true
	got, err := Load(r.Save())
	require.NoError(t, err)
	delete(r.Resources, Key{"ls", "under way"})
	delete(r.Spaces, "also under way")
	one.Block = nil // it is read again
	require.Equal(t, r, got)
	next := &Client{}
	got.Register(next)
	require.Equal(t, 3, next.ID)
}

// TestRegistry_Save_KeepsThatItIsReleased: the next process releases it, and no client adopts it.
func TestRegistry_Save_KeepsThatItIsReleased(t *testing.T) {
	for name, release := range map[string]func(r *Registry, a *Client, res *Resource){
		"by its client":   func(r *Registry, a *Client, res *Resource) { require.True(t, r.Undo(a, res)) },
		"with its client": func(r *Registry, a *Client, _ *Resource) { require.Len(t, r.Gone(a.ID), 1) },
		"as an orphan": func(r *Registry, _ *Client, res *Resource) {
			res.Users = nil
			require.Len(t, r.BeginReleaseOrphans(res.Key()), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, a, _ := joined(t)
			res := acquired(t, r, a, resource("x", 0), 0)
			release(r, a, res)
			got, err := Load(r.Save())
			require.NoError(t, err)
			next := got.Resources[res.Key()]
			require.Equal(t, Removing, next.State)
			require.False(t, next.Orphan())
			r.Drop(res)
			got, err = Load(r.Save())
			require.NoError(t, err)
			require.Empty(t, got.Resources)
		})
	}
}

func TestLoad_DamagedText_IsRefused(t *testing.T) {
	r, a, _ := joined(t)
	acquired(t, r, a, resource("x", 0), 0)
	whole := string(r.Save())
	_, err := Load([]byte(whole))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"empty":            "",
		"no JSON":          "\x00\x01",
		"cut off":          whole[:len(whole)-1],
		"more after it":    whole + "x",
		"an unknown user":  strings.Replace(whole, `"users":[1]`, `"users":[1,7]`, 1),
		"null client":      strings.Replace(whole, `"clients":[`, `"clients":[null,`, 1),
		"null lockspace":   strings.Replace(whole, `"spaces":[`, `"spaces":[null,`, 1),
		"null resource":    strings.Replace(whole, `"resources":[`, `"resources":[null,`, 1),
		"no disk":          strings.Replace(whole, `"Disks":[{`, `"Disks":[],"x":[{`, 1),
		"no lockspace":     strings.Replace(whole, `"spaces":[`, `"spaces":[],"x":[`, 1),
		"the client twice": strings.Replace(whole, `"id":2`, `"id":1`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, whole, text, "the case is in the text")
			_, err := Load([]byte(text))
			require.Error(t, err)
		})
	}
}

// FuzzLoad checks that no text makes Load panic, and that Save returns what was loaded.
func FuzzLoad(f *testing.F) {
	r := New()
	r.Register(&Client{Process: process.ID{PID: 1}})
	r.Spaces["ls"] = &Space{Lockspace: lockspace("ls", 1), Hold: hold("s")}
	res := &Resource{Resource: resource("x", 0), Users: []int{1}, Hold: hold("t")}
	r.Resources[res.Key()] = res
	f.Add(r.Save())
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Load(text)
		if err != nil {
			return
		}
		once := r.Save()
		if once == nil {
			return
		}
		again, err := Load(once)
		require.NoError(t, err)
		for _, res := range again.Resources {
			for _, id := range res.Users {
				require.Contains(t, again.Clients, id)
			}
		}
	})
}
