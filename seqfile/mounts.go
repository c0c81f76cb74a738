package seqfile

import (
	"bufio"
	"bytes"
	"io"
)

// maxPath is how long the path of what is mounted, and of where, may be. TooLong takes the place of
// one that is longer, and is none.
const (
	maxPath = 4096
	TooLong = "//"
)

// Mounts reads a mountinfo (proc_pid_mountinfo(5)) for a parser that gives up all of it for one
// line that is longer than bufio.MaxScanTokenSize. Whoever may write to a directory that is mounted
// can make one so: its path is left out, and the rest of the line stays. A line that is too long
// even so is left out.
func Mounts(r io.Reader) io.Reader {
	return &mounts{in: bufio.NewReaderSize(r, 16<<10)}
}

type mounts struct {
	in   *bufio.Reader
	line []byte
	left []byte // of line, which was not read yet
}

// Read has all lines before the first one that cannot be read.
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

// The fields of a line that are paths: of what is mounted, on its device, and of where.
const (
	rootField  = 3
	pointField = 4
)

// next reads a line. The last one may lack its end.
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
			case cut: // more of what is left out
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
		// of a line that could not be read whole, nothing
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
