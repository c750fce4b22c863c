package daemon

import "github.com/bakeryd/bakeryd/layout"

// The internal lock that guards the directory has no entry of its own.
const (
	directoryLock     = 0
	directoryCreation = 1
)

var directoryEntry = layout.Entry{Lock: directoryLock, Permits: 1, Creation: directoryCreation}
