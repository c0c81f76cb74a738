package frames

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// segment is the file that is written to, and those before it: FILE, FILE.1, FILE.2 and so on, the
// last the oldest.
type segment struct {
	path  string
	files int   // at most, with FILE
	most  int64 // bytes in one
	age   time.Duration

	file  *os.File // nil: none is open
	size  int64    // of whole frames in it
	began time.Time
	last  time.Time
}

// fresh reports whether a frame of this size and time begins a new file: none is open, or it has
// been moved or removed; it would become too large or old; or time has gone backwards, which no
// file may do.
func (s *segment) fresh(at time.Time, size int64) bool {
	if s.file == nil || s.size > 0 && (s.size+size > s.most || at.Sub(s.began) >= s.age ||
		at.Before(s.last)) {
		return true
	}
	there, err1 := os.Lstat(s.path)
	own, err2 := s.file.Stat()
	return err1 != nil || err2 != nil || !os.SameFile(there, own)
}

// begin opens a new file. What lies there is moved on, never written to.
func (s *segment) begin() error {
	s.close()
	switch there, err := os.Lstat(s.path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("record: %w", err)
	case !there.Mode().IsRegular():
		return fmt.Errorf("record: %s is there and is no regular file", s.path)
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

// write appends whole frames. Where it fails, half a frame must not stay before the next one.
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
