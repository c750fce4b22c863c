package scale

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// simulatedHosts writes the records of hosts that do not run: valid, and renewed like those of live
// hosts. Other hosts see no more of a host that wants no lock.
type simulatedHosts struct {
	space   *space
	records []layout.HostRecord
	stop    chan struct{}
	done    sync.WaitGroup
	err     error // of the renewals; valid when done
}

// simulate puts hosts first to last into the table.
func (s *space) simulate(first, last int) (*simulatedHosts, error) {
	c := &simulatedHosts{space: s, stop: make(chan struct{})}
	for id := first; id <= last; id++ {
		c.records = append(c.records, layout.HostRecord{ID: id, Incarnation: 0xc0ffee<<16 + uint64(id), State: layout.StateLive,
			Sequence: 1, Name: "elsewhere", ReadHorizon: s.sb.Geometry.Hosts})
	}
	if err := c.renew(); err != nil {
		return nil, err
	}
	c.done.Go(func() {
		t := time.NewTicker(s.sb.Lease / 6)
		defer t.Stop()
		for c.err == nil {
			select {
			case <-t.C:
				c.err = c.renew()
			case <-c.stop:
				return
			}
		}
	})
	return c, nil
}

func (c *simulatedHosts) renew() error {
	g, buf := c.space.sb.Geometry, blockdev.Alloc(stride)
	for i := range c.records {
		r := &c.records[i]
		r.Sequence++
		if err := c.space.sb.Space().EncodeHost(buf, *r); err != nil {
			return err
		}
		if err := c.space.put(buf, g.Host(r.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (c *simulatedHosts) leave() error {
	close(c.stop)
	c.done.Wait()
	return c.err
}
