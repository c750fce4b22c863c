// Package registry has what the clients of sanlock's socket have on this host: clients, lockspaces and
// resources, and the rules of sanlock 3.8.5 for them (its resource.c and lockspace.c). It is pure: it knows
// no socket, no lock of bakeryd and no clock, and it is not safe for concurrent use.
//
// A command has up to three steps. Begin decides and marks what is under way; the server then does what
// takes time; End records the outcome. Nothing that is under way is saved.
package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/bakeryd/bakeryd/daemon/process"
	"github.com/bakeryd/bakeryd/daemon/sanlock/wire"
	"github.com/bakeryd/bakeryd/layout"
)

// State is what is under way with a lockspace or a resource.
type State uint8

const (
	Adding State = iota + 1
	Present
	Removing
)

// String returns the name of the list in which sanlock would have it.
func (s State) String() string {
	switch s {
	case Adding:
		return "add"
	case Removing:
		return "rem"
	}
	return "held"
}

// Hold names a hold of bakeryd's.
type Hold struct {
	Session string        `json:"session"`
	Token   layout.Ticket `json:"token"`
}

// Client is a registered process. A client without a connection is known by its process alone.
type Client struct {
	ID       int        `json:"id"`
	Process  process.ID `json:"process"`
	UID      int        `json:"uid"`
	GID      int        `json:"gid"`
	Groups   []int      `json:"groups,omitempty"`
	Name     string     `json:"name"`
	Restrict uint32     `json:"restrict,omitempty"`
	KillPath string     `json:"kill_path,omitempty"`
	KillArgs string     `json:"kill_args,omitempty"`

	Kept    string       `json:"kept,omitempty"`    // name under which its connection is kept for the next process
	Killing bool         `json:"killing,omitempty"` // it must release all, and acquires nothing
	Active  wire.Command `json:"-"`                 // under way; 0: none
}

// Space is a sanlock lockspace that this host is in.
type Space struct {
	wire.Lockspace
	IOTimeout     uint32 `json:"io_timeout"`
	Used          bool   `json:"used,omitempty"`            // not to be removed, whatever holds it
	UsedByOrphans bool   `json:"used_by_orphans,omitempty"` // not to be removed while it has orphans
	Hold          Hold   `json:"hold"`                      // of the lock of its host id; the token is the generation

	State State `json:"-"`
	Dead  bool  `json:"dead,omitempty"` // it is being removed, or the lease is ending: nothing more is acquired
}

// Key identifies a resource.
type Key struct{ Lockspace, Name string }

func (k Key) String() string { return k.Lockspace + ":" + k.Name }

// Resource is a lease that this host has. Without a user it is an orphan.
type Resource struct {
	wire.Resource
	Shared     bool   `json:"shared,omitempty"`
	Persistent bool   `json:"persistent,omitempty"` // it becomes an orphan when its last user has ended
	Users      []int  `json:"users"`                // ids of clients; one that has acquired it twice is there twice
	Hold       Hold   `json:"hold"`
	LVB        bool   `json:"lvb,omitempty"` // acquired with a value block
	Nonce      uint64 `json:"nonce"`         // of the record in its area

	// it is being released: its lock may be held or not
	Releasing bool `json:"releasing,omitempty"`

	State      State  `json:"-"`
	Converting bool   `json:"-"` // to exclusive: no other client joins
	Lost       bool   `json:"-"` // its lock is not held: other hosts may have it, and its users must stop
	Block      []byte `json:"-"` // the value block, nil if it was not read yet
}

// Key returns what identifies the resource.
func (r *Resource) Key() Key { return Key{r.Lockspace, r.Name} }

// giveUp marks the resource as being released.
func (r *Resource) giveUp() { r.State, r.Releasing = Removing, true }

// Orphan reports whether no client has the resource.
func (r *Resource) Orphan() bool { return r.State == Present && len(r.Users) == 0 }

// Registry has all clients, lockspaces and resources of this host.
type Registry struct {
	Clients   map[int]*Client
	Spaces    map[string]*Space
	Resources map[Key]*Resource
	last      int // id of the last client
}

func New() *Registry {
	return &Registry{Clients: map[int]*Client{}, Spaces: map[string]*Space{}, Resources: map[Key]*Resource{}}
}

// saved is the form of a registry in a file.
type saved struct {
	Clients   []*Client   `json:"clients"`
	Spaces    []*Space    `json:"spaces"`
	Resources []*Resource `json:"resources"`
}

// Save returns the registry as JSON, without what is under way; nil if it has nothing that a next process
// must know.
func (r *Registry) Save() []byte {
	var s saved
	for _, space := range r.Spaces {
		if space.Hold.Session != "" {
			s.Spaces = append(s.Spaces, space)
		}
	}
	for _, res := range r.Resources {
		if res.Hold.Session != "" {
			s.Resources = append(s.Resources, res)
		}
	}
	if len(s.Spaces)+len(s.Resources)+len(r.Clients) == 0 {
		return nil
	}
	s.Clients = r.All()
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has plain fields only
	}
	return text
}

// Load returns the registry that Save returned. It refuses a text that Save cannot return.
func Load(text []byte) (*Registry, error) {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	r := New()
	for _, c := range s.Clients {
		if c == nil || r.Clients[c.ID] != nil {
			return nil, errors.New("a client is missing, or is there twice")
		}
		r.Clients[c.ID] = c
		r.last = max(r.last, c.ID)
	}
	for _, space := range s.Spaces {
		if space == nil || r.Spaces[space.Name] != nil || space.Hold.Session == "" {
			return nil, errors.New("a lockspace is missing, is there twice, or has no hold")
		}
		space.State = Present
		r.Spaces[space.Name] = space
	}
	for _, res := range s.Resources {
		if res == nil || r.Resources[res.Key()] != nil || r.Spaces[res.Lockspace] == nil || res.Hold.Session == "" || len(res.Disks) == 0 {
			return nil, errors.New("a resource is missing, is there twice, or has no lockspace, hold or disk")
		}
		for _, id := range res.Users {
			if r.Clients[id] == nil {
				return nil, fmt.Errorf("resource %s is of client %d, which is not there", res.Key(), id)
			}
		}
		if res.State = Present; res.Releasing {
			res.State = Removing
		}
		r.Resources[res.Key()] = res
	}
	return r, nil
}

// Register adds a client and sets its id.
func (r *Registry) Register(c *Client) {
	r.last++
	c.ID = r.last
	r.Clients[c.ID] = c
}

// All returns all clients, in the order in which they were registered.
func (r *Registry) All() (all []*Client) {
	for _, c := range r.Clients {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Client) int { return a.ID - b.ID })
	return all
}

// ByPID returns the first client of a process, nil if there is none.
func (r *Registry) ByPID(pid int) *Client {
	for _, c := range r.All() {
		if c.Process.PID == pid {
			return c
		}
	}
	return nil
}

// Begin marks a command of a client as under way. It returns EBUSY if another one is, or if the client is
// being killed and the command would acquire.
func (c *Client) Begin(cmd wire.Command) wire.Code {
	if c.Active != 0 || c.Killing && cmd == wire.Acquire {
		return wire.Errno(syscall.EBUSY)
	}
	c.Active = cmd
	return wire.OK
}

// Of returns the resources that a client has, in the order of their keys. One that it has acquired twice is there twice.
func (r *Registry) Of(client int) (has []*Resource) {
	for _, res := range r.resources(func(res *Resource) bool { return slices.Contains(res.Users, client) }) {
		for _, id := range res.Users {
			if id == client {
				has = append(has, res)
			}
		}
	}
	return has
}

// In returns the resources of a lockspace, in the order of their keys.
func (r *Registry) In(lockspace string) []*Resource {
	return r.resources(func(res *Resource) bool { return res.Lockspace == lockspace })
}

func (r *Registry) resources(which func(*Resource) bool) (found []*Resource) {
	for _, res := range r.Resources {
		if which(res) {
			found = append(found, res)
		}
	}
	slices.SortFunc(found, func(a, b *Resource) int {
		return slices.Compare([]string{a.Lockspace, a.Name}, []string{b.Lockspace, b.Name})
	})
	return found
}

// Gone removes a client that has ended, and returns the resources that must be released: those that no
// other client has, and that are not persistent. They are being removed then.
func (r *Registry) Gone(client int) (release []*Resource) {
	for _, res := range r.Of(client) {
		for at := slices.Index(res.Users, client); at >= 0; at = slices.Index(res.Users, client) {
			res.Users = slices.Delete(res.Users, at, at+1)
		}
		if len(res.Users) == 0 && (!res.Persistent || res.Lost) && res.State == Present {
			res.giveUp()
			release = append(release, res)
		}
	}
	delete(r.Clients, client)
	return release
}
