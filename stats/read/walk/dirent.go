package walk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errMalformed: a directory listing does not have the kernel's format.
var errMalformed = errors.New("malformed")

// DirEntry is one record of a directory.
type DirEntry struct {
	Name  string
	Next  int64 // position of the record after it
	Kind  byte  // DT_DIR and such; DT_UNKNOWN if the file system does not report it
	Inode uint64
}

// Dirent parses the first record of a getdents64(2) buffer: inode (8 bytes), position of the
// next (8), length (2), type (1), name.
func Dirent(b []byte) (e DirEntry, rest []byte, ok bool) {
	const nameOffset = 19
	if len(b) <= nameOffset {
		return e, nil, false
	}
	length := int(b[16]) | int(b[17])<<8
	if length <= nameOffset || length > len(b) {
		return e, nil, false
	}
	raw := b[nameOffset:length]
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return DirEntry{string(raw), int64(binary.NativeEndian.Uint64(b[8:])), b[18],
		binary.NativeEndian.Uint64(b)}, b[length:], true
}

// Subdirectories visits the directories in an open directory.
func Subdirectories(fd int, visit func(string)) error {
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			e, rest, ok := Dirent(b)
			if !ok {
				return fmt.Errorf("list directory: %w record", errMalformed)
			}
			b = rest
			if e.Kind == unix.DT_UNKNOWN { // not every file system reports it
				var st unix.Stat_t
				if unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) == nil &&
					st.Mode&unix.S_IFMT == unix.S_IFDIR {
					e.Kind = unix.DT_DIR
				}
			}
			if e.Kind == unix.DT_DIR && e.Name != "." && e.Name != ".." {
				visit(e.Name)
			}
		}
	}
}
