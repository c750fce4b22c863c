package report

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
)

// Glance is the answer to GET /page/status. Without a report it has an error. With a report, the
// error says why what was read is old.
type Glance struct {
	At     time.Time  `json:"at"`
	Report *Report    `json:"report,omitempty"`
	Read   GlanceRead `json:"read"`
	Error  *api.Error `json:"error,omitempty"`
}

// GlanceRead describes the reads behind a Glance.
type GlanceRead struct {
	AgoMS   int64 `json:"ago_ms"`
	TookMS  int64 `json:"took_ms"`
	Bytes   int64 `json:"bytes"`
	EveryMS int64 `json:"every_ms"` // interval at which the whole lockspace is read
}
