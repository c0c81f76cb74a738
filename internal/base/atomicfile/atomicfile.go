// Package atomicfile reads and replaces small regular files as a whole. What it is asked to read
// may be a pipe, a device or far too large: it neither waits for the one nor holds the other in
// memory. A Stream is for what may well be a pipe. What is written is after a crash either the old
// file or the new one.
//
// Libraries that replace files (github.com/google/renameio/v2, github.com/natefinch/atomic) leave
// two things out: the directory is not synced, so the new name may be lost with the power, and the
// temporary files of processes that died in the middle pile up.
//
//	atomicfile.go Open, Read: small files; Replace, Clean: writing them
//	lock.go      Lock: one process at a time
//	stream.go    Stream: what may be a pipe
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errLink and errKind are why a file is not opened.
var (
	errLink = errors.New("is a symbolic link, which is not followed")
	errKind = errors.New("is no regular file")
)

// TooLarge is the error for a file of more bytes than its reader takes.
type TooLarge int64

func (most TooLarge) Error() string { return fmt.Sprintf("larger than %d bytes", int64(most)) }

// Open opens a regular file and nothing else, and does not wait for a pipe's other end. flags are
// those of os.OpenFile, with unix.O_NOFOLLOW where a symbolic link is to be refused; a file that it
// makes has mode 0600. Errors are of type *os.PathError.
func Open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: errLink}
	}
	if errors.Is(err, unix.ENXIO) { // a socket, or a device without a driver
		return nil, &os.PathError{Op: "open", Path: path, Err: errKind}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errKind}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Read reads a regular file of at most so many bytes. flags are as of Open. Errors are of type
// *os.PathError: errors.Unwrap takes the path off for a message that has it already. One of a file
// that has more is a TooLarge.
func Read(path string, most int64, flags int) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY|flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := ReadAll(f, most)
	if large := TooLarge(0); errors.As(err, &large) {
		err = &os.PathError{Op: "read", Path: path, Err: large}
	}
	return text, err
}

// ReadAll reads to the end what has at most so many bytes, else the error is a TooLarge.
func ReadAll(r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, TooLarge(most)
	}
	return text, nil
}

// tempEnd is how temporary files end.
const tempEnd = ".tmp"

// Replace puts what fill writes in the place of a file, mode 0600, as a whole and on the disk.
// Until then it is in a file of its own beside it, PATH.RANDOM.tmp: two processes that replace one
// file at the same time do not write into each other's. That of a process that died in the middle
// is for Clean.
func Replace(path string, fill func(*os.File) error) (err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	name := filepath.Base(path)
	temp := name + "." + rand.Text() + tempEnd
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return syncDir(dir)
}

// Clean removes what processes have left that died while they replaced a file: PATH.RANDOM.tmp, and
// PATH.tmp of older versions, whatever it is. It is for the one process that replaces the file from
// now on. What cannot be removed stays: the next start tries again.
func Clean(path string) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	d, err := dir.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if rest, own := strings.CutPrefix(name, filepath.Base(path)+"."); own &&
				strings.HasSuffix("."+rest, tempEnd) {
				_ = dir.Remove(name)
			}
		}
		if err != nil {
			return
		}
	}
}

// syncDir has a directory's entries lie on the disk. A file system that cannot do that is no reason
// to fail.
func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
