package lockspace

import "github.com/bakeryd/bakeryd/layout"

// The internal lock guards the directory and has no entry on the disk.
const (
	DirectoryLock     = 0 // its number
	DirectoryCreation = 1 // its creation id
)

// DirectoryEntry is the entry that the internal lock would have.
var DirectoryEntry = layout.Entry{Lock: DirectoryLock, Permits: 1, Creation: DirectoryCreation}
