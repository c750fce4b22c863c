// Package lower has the mutex of which TestMutexes_Faults_AreFound knows the faults.
package lower

import (
	"os"
	"sync"
	"time"
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
