package frames

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// segment is the current file and the previous ones: FILE, FILE.1, FILE.2 and so on, with the
// oldest last.
type segment struct {
	path  string
	files int   // maximum number, including FILE
	most  int64 // maximum bytes per file
	age   time.Duration

	file  *os.File // nil: not open
	size  int64    // of the complete frames in it
	began time.Time
	last  time.Time
}

// needsNewFile reports whether a frame of this size and time starts a new file: none is open; the file was
// moved or removed; it would become too large or too old; or time went backwards, which is invalid
// within a file.
func (s *segment) needsNewFile(at time.Time, size int64) bool {
	if s.file == nil || s.size > 0 && (s.size+size > s.most || at.Sub(s.began) >= s.age ||
		at.Before(s.last)) {
		return true
	}
	there, err1 := os.Lstat(s.path)
	own, err2 := s.file.Stat()
	return err1 != nil || err2 != nil || !os.SameFile(there, own)
}

// begin opens a new file. An existing file is rotated, never appended to.
func (s *segment) begin() error {
	s.close()
	switch there, err := os.Lstat(s.path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("record: %w", err)
	case !there.Mode().IsRegular():
		return fmt.Errorf("record: %s exists and is not a regular file", s.path)
	case there.Size() == 0:
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	default:
		if err := s.rotate(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	s.file, s.size = f, 0
	return nil
}

func (s *segment) rotate() error {
	name := func(i int) string {
		if i == 0 {
			return s.path
		}
		return fmt.Sprintf("%s.%d", s.path, i)
	}
	if s.files == 1 {
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	}
	for i := s.files - 2; i >= 0; i-- {
		if err := os.Rename(name(i), name(i+1)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("record: %w", err)
		}
	}
	return nil
}

// write appends complete frames. After an error it removes a partial frame.
func (s *segment) write(b []byte, at time.Time) error {
	if _, err := s.file.Write(b); err != nil {
		if s.file.Truncate(s.size) != nil {
			s.close()
		}
		return fmt.Errorf("record: %w", err)
	}
	if s.size == 0 {
		s.began = at
	}
	s.size += int64(len(b))
	s.last = at
	return nil
}

func (s *segment) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}
