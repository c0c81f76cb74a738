// Package seqfile reads files of /proc in which a tenant can make a line very long, for example by
// mounting a very long path.
//
//	seqfile.go    File: an open file
//	oomprotect.go protection of the process from OOM kills while such a file is open
//	mounts.go     Mounts: a mountinfo file with lines short enough for its parser
//
// The kernel builds each line as a whole, in a buffer that it doubles until the line fits (v6.12
// fs/seq_file.c seq_read_iter), even if little of it is read. The buffer is charged to the reader's
// memory cgroup (seq_buf_alloc: GFP_KERNEL_ACCOUNT). For a path of 33 MB (33,000 nested directories
// with names of newlines) the buffer has 64 MiB, the agent's whole memory limit. While such a file
// is open, this process is therefore protected from OOM kills: the cgroup then has no process to
// kill, the charge fails, and only the line cannot be read.
package seqfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLong: the next line needs more memory than is left. The lines before it were read; the lines
// after it cannot be read.
var ErrLong = errors.New(
	"line too long for the memory that is left: the rest of the file is not read")

// File is an open file. The kernel keeps the buffer of the last line until Close, so do not keep a
// File open.
type File struct{ f *os.File }

// Open opens a file for reading.
func Open(name string) (*File, error) { return OpenAt(unix.AT_FDCWD, name) }

// OpenAt opens a file by a name relative to a directory.
func OpenAt(dir int, name string) (*File, error) {
	protect()
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			unprotect()
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return &File{os.NewFile(uintptr(fd), name)}, nil
	}
}

// Read reads like os.File.Read. After ErrLong all further reads fail too.
func (f *File) Read(b []byte) (int, error) {
	n, err := f.f.Read(b)
	if errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("read %s: %w", f.f.Name(), ErrLong)
	}
	return n, err
}

// Close closes the file. It must be called exactly once. It returns no error, because the file was
// only read.
func (f *File) Close() {
	_ = f.f.Close()
	unprotect()
}
