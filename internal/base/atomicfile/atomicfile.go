// Package atomicfile reads and replaces small regular files as a whole. A path to read may name a
// pipe, a device or a very large file: the package never waits for these and bounds the bytes in
// memory. A Stream reads pipes too. After a crash, a replaced file has either the old or the new
// content.
//
// Libraries that replace files (github.com/google/renameio/v2, github.com/natefinch/atomic) do not
// sync the directory, so the new name may be lost on power failure, and do not remove temporary
// files of processes that died during a replacement.
//
//	atomicfile.go  Open, Read: read small files; Replace, Clean: write them
//	lock.go        Lock: a lock for one process at a time
//	stream.go      Stream: reads files and pipes
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

// Reasons why Open does not open a file.
var (
	errLink = errors.New("is a symbolic link, not followed")
	errKind = errors.New("not a regular file")
)

// TooLarge is the error for a file with more bytes than the limit, which is its value.
type TooLarge int64

func (limit TooLarge) Error() string { return fmt.Sprintf("larger than %d bytes", int64(limit)) }

// Open opens a regular file and rejects any other kind, without waiting for the other end of a
// pipe. flags are those of os.OpenFile, with unix.O_NOFOLLOW to reject symbolic links; a new file
// has mode 0600. Errors are of type *os.PathError.
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

// Read reads a regular file of at most limit bytes. flags are those of Open. Errors are of type
// *os.PathError; errors.Unwrap removes the path for a message that has it already. The error of a
// larger file wraps a TooLarge.
func Read(path string, limit int64, flags int) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY|flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := ReadAll(f, limit)
	if large := TooLarge(0); errors.As(err, &large) {
		err = &os.PathError{Op: "read", Path: path, Err: large}
	}
	return text, err
}

// ReadAll reads r to its end. If it has more than limit bytes, the error is a TooLarge.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, TooLarge(limit)
	}
	return text, nil
}

// tempEnd is the suffix of temporary files.
const tempEnd = ".tmp"

// Replace replaces a file, mode 0600, by the content that fill writes, as a whole and synced to
// disk. fill writes to a separate file next to it, PATH.RANDOM.tmp, so that two processes that
// replace the same file do not write to the same temporary one. Clean removes the temporary files
// of processes that died.
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

// Clean removes temporary files of processes that died during a replacement: PATH.RANDOM.tmp, and
// PATH.tmp of older versions, of any kind. Only the process that replaces the file from now on may
// call it. Files that cannot be removed stay until the next start.
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

// syncDir syncs a directory to disk. It returns no error if the file system does not support this.
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
