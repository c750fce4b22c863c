//go:build packaging

package show

// Dumped returns the type of a line of dump --json, and those of the records in it.
func Dumped() (line any, records []any) {
	return recordJSON{}, []any{superblockJSON{}, hostJSON{}, entryJSON{}, slotJSON{}}
}
