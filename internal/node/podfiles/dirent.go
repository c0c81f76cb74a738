package podfiles

import (
	"bytes"
	"encoding/binary"
	"errors"
)

var errRecord = errors.New("malformed directory record")

// dirent parses the first record of a getdents64(2) buffer: inode (8 bytes), position of the next
// (8), length (2), type (1), name. It returns the rest of the buffer.
func dirent(b []byte) (name string, next int64, rest []byte, err error) {
	const nameOffset = 19
	if len(b) <= nameOffset {
		return "", 0, nil, errRecord
	}
	length := int(binary.NativeEndian.Uint16(b[16:]))
	if length <= nameOffset || length > len(b) {
		return "", 0, nil, errRecord
	}
	raw := b[nameOffset:length]
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return string(raw), int64(binary.NativeEndian.Uint64(b[8:])), b[length:], nil
}
