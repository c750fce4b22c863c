package check

import (
	"context"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// Suspicions returns the findings of one pass, before they are confirmed.
func Suspicions(dev blockdev.Device, sb layout.Superblock) (found []Finding, err error) {
	ex := &examiner{Device: dev, ctx: context.Background(), sb: sb}
	p, err := ex.readPicture(ex.allLocks())
	if err != nil {
		return nil, err
	}
	for _, s := range p.suspicions(time.Now()) {
		found = append(found, s.Finding)
	}
	return found, nil
}
