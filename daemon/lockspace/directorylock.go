package lockspace

import "github.com/bakeryd/bakeryd/layout"

// The internal lock that guards the directory has no entry of its own.
const (
	DirectoryLock     = 0
	DirectoryCreation = 1
)

var DirectoryEntry = layout.Entry{Lock: DirectoryLock, Permits: 1, Creation: DirectoryCreation}
