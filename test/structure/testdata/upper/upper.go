// Package upper is called by package lower.
package upper

import "github.com/bakeryd/bakeryd/test/structure/testdata/lower"

type client struct{}

func (client) Hear() {}

func Use(l *lower.List) {
	l.Changed = func() {}
	l.Add(client{})
	l.TellAll()
	l.TellFirst()
	l.Change(true)
	_ = l.Save()
	new(lower.Others).Sort(func(a, b int) int { return a - b })
}
