// Package lower has the mutex of which TestMutexes_Faults_AreFound knows the faults.
package lower

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Client is implemented above.
type Client interface{ Hear() }

type List struct {
	mu      sync.Mutex
	clients []Client
	Changed func()
}

func (l *List) Add(c Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = append(l.clients, c)
}

// TellAll calls up with mu held.
func (l *List) TellAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell()
}

func (l *List) tell() {
	for _, c := range l.clients {
		c.Hear()
	}
}

// TellFirst calls up without.
func (l *List) TellFirst() {
	l.mu.Lock()
	c := l.clients[0]
	l.mu.Unlock()
	c.Hear()
}

// Change calls a function from above with mu held, in one of its ways.
func (l *List) Change(told bool) {
	l.mu.Lock()
	if !told {
		l.mu.Unlock()
	}
	l.Changed()
	time.AfterFunc(0, l.Changed)
	go l.Changed()
}

// Save does IO with mu held.
func (l *List) Save() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return os.Remove("x")
}

// Others has mutexes of other kinds.
type Others struct {
	sync.Mutex
	rw     sync.RWMutex
	many   [2]sync.Mutex
	locker sync.Locker
	less   func(a, b int) int
	list   []int
	file   *os.File
}

func (o *Others) Embedded() {
	o.Lock()
	defer o.Unlock()
	_ = os.Remove("embedded")
}

func (o *Others) Read() {
	o.rw.RLock()
	defer o.rw.RUnlock()
	_ = os.Remove("read")
}

func (o *Others) Try() {
	if o.rw.TryLock() {
		_ = os.Remove("try")
		o.rw.Unlock()
	}
}

func (o *Others) Element() {
	o.many[1].Lock()
	_ = os.Remove("element")
	o.many[1].Unlock()
}

func (o *Others) Locker() {
	o.locker.Lock()
	_ = os.Remove("locker")
	o.locker.Unlock()
}

func locked(mu *sync.Mutex) {
	mu.Lock()
	_ = os.Remove("pointer")
	mu.Unlock()
}

func Local() {
	var mu sync.Mutex
	func() {
		mu.Lock()
		defer mu.Unlock()
		_ = os.Remove("local")
	}()
}

func generic[T any](o *Others, v T) T {
	o.Lock()
	_ = os.Remove("generic")
	o.Unlock()
	return v
}

// Sort has another module call a function of a field.
func (o *Others) Sort(less func(a, b int) int) {
	o.less = less
	o.Lock()
	slices.SortFunc(o.list, o.less)
	o.Unlock()
}

// Write has another module do IO.
func (o *Others) Write() {
	o.Lock()
	fmt.Fprintln(o.file, "x")
	o.Unlock()
}

func (o *Others) Sync(fd int) {
	o.Lock()
	_ = unix.Fsync(fd)
	o.Unlock()
}

// Log writes to a file.
func (o *Others) Log() {
	o.Lock()
	slog.Default().Info("x")
	o.Unlock()
}

// Order has a deferred call before the deferred Unlock.
func (o *Others) Order() {
	o.Lock()
	defer o.Unlock()
	defer func() { _ = os.Remove("order") }()
}

// Value locks by a method value.
func (o *Others) Value() {
	lock := o.Lock
	lock()
	_ = os.Remove("value")
	o.Unlock()
}

func UseOthers(o *Others) {
	locked(&o.Mutex)
	_ = generic(o, 1)
}
