package handover

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// The previous format of a handover file, which is read once, when bakeryd is upgraded. A cell is
//
//	bytes    content
//	0-3      CRC32C of bytes 4-2047, little-endian
//	4-2047   one JSON object as encoding/json writes it, then zeroes
//
// and a free cell is all zeroes.
const (
	oldFormat   = 1
	oldCellSize = 2048
	oldTextAt   = 4
)

// isOld reports whether a file has the previous format. The length in the seal of its first cell would
// be too large.
func isOld(in *bufio.Reader) bool {
	head, _ := in.Peek(oldTextAt + len(`{"format":1,`))
	return bytes.HasSuffix(head, []byte(`{"format":1,`))
}

// oldText returns the text of a cell in the previous format, empty if the cell is free.
func oldText(cell []byte) (text []byte, released bool, err error) {
	text = bytes.TrimRight(cell[oldTextAt:], "\x00")
	sum := binary.LittleEndian.Uint32(cell)
	if len(text) == 0 && sum == 0 {
		return nil, false, nil
	}
	if sum != crc32.Checksum(cell[oldTextAt:], crc32.MakeTable(crc32.Castagnoli)) {
		return nil, false, errors.New("checksum does not match")
	}
	return text, false, nil
}

// convert replaces a file of the previous format by one with the same content.
func (c *content) convert(path string) (*File, error) {
	j, err := create(path, path+".new")
	if err != nil {
		return nil, err
	}
	j.PutTerm(c.term)
	for _, s := range c.sessions {
		j.Reserve(s.ID)
		j.Put(s)
	}
	if err = j.Err(); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("convert it from format %d into %s: %w", oldFormat, filepath.Base(path)+".new", err)
	}
	return j, nil
}
