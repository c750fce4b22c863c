package scale

import (
	"sync"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// crowd stands for the hosts that are not run: their records are on the disk, valid and renewed as those of live hosts
// are, which is all that another host ever sees of them while they want no lock.
type crowd struct {
	space   *space
	records []layout.HostRecord
	stop    chan struct{}
	done    sync.WaitGroup
	err     error // of the renewals; to be read when done
}

// settle has hosts first to last stand in the table.
func (s *space) settle(first, last int) (*crowd, error) {
	c := &crowd{space: s, stop: make(chan struct{})}
	for id := first; id <= last; id++ {
		c.records = append(c.records, layout.HostRecord{ID: id, Incarnation: 0xc0ffee<<16 + uint64(id), State: layout.StateLive,
			Sequence: 1, Name: "elsewhere", Highest: s.sb.Geometry.Hosts})
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

func (c *crowd) renew() error {
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

func (c *crowd) leave() error {
	close(c.stop)
	c.done.Wait()
	return c.err
}
