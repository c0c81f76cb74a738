package seqfile

import (
	"bufio"
	"bytes"
	"io"
)

// maxPath is the maximum length of each of the two paths of a mount: its root and its mount point.
// TooLong, which is no valid path, replaces a longer path.
const (
	maxPath = 4096
	TooLong = "//"
)

// Mounts returns a reader of a mountinfo file (proc_pid_mountinfo(5)) for a parser that fails on
// any line longer than bufio.MaxScanTokenSize. A tenant that may write to a mounted directory can
// create a line with a very long path. Mounts replaces such a path and keeps the rest of the line.
// It leaves out a line that is still too long.
func Mounts(r io.Reader) io.Reader {
	return &mounts{in: bufio.NewReaderSize(r, 16<<10)}
}

type mounts struct {
	in   *bufio.Reader
	line []byte
	left []byte // unread part of line
}

// Read returns all lines before the first line that cannot be read.
func (m *mounts) Read(b []byte) (int, error) {
	for len(m.left) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, m.left)
	m.left = m.left[n:]
	return n, nil
}

// The fields of a line that are paths: the root on the mount's device, and the mount point.
const (
	rootField  = 3
	pointField = 4
)

// next reads a line. The last one may lack its newline.
func (m *mounts) next() error {
	m.line = m.line[:0]
	field, start, cut, long := 0, 0, false, false
	for {
		piece, err := m.in.ReadSlice('\n')
		text, ended := bytes.CutSuffix(piece, []byte("\n"))
		for more := true; more; {
			var part []byte
			part, text, more = bytes.Cut(text, []byte(" "))
			switch {
			case cut: // the rest of a replaced path
			case (field == rootField || field == pointField) && len(m.line)-start+len(part) > maxPath:
				m.line, cut = append(m.line[:start], TooLong...), true
			case len(m.line)+len(part)+2 > bufio.MaxScanTokenSize:
				long = true
			default:
				m.line = append(m.line, part...)
			}
			if more {
				m.line = append(m.line, ' ')
				field, start, cut = field+1, len(m.line), false
			}
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
			// drop a line that could not be read completely
		case err != nil && (err != io.EOF || len(m.line) == 0):
			return err
		case long:
			m.line = m.line[:0]
		case ended:
			m.line = append(m.line, '\n')
		}
		m.left = m.line
		return nil
	}
}
