// Package seqfile reads files of /proc in which a tenant can make a line very long: a path that it
// has mounted, locks that it has taken.
//
//	seqfile.go  File: one that is open
//	spare.go    that the process is not killed for what the kernel needs meanwhile
//	mounts.go   Mounts: a mountinfo, with lines as short as its parser takes
//
// The kernel makes each line as a whole, in a buffer that it doubles until the line fits (v6.12
// fs/seq_file.c seq_read_iter), however little of it is read. It is charged to the memory cgroup of
// who reads (seq_buf_alloc: GFP_KERNEL_ACCOUNT), which for a path of 33 MB - 33,000 directories
// whose names are line ends - is 64 MiB: as much as the agent may have in all. So while such a file
// is open this process is one that the kernel may not kill for memory: then the cgroup finds none
// to kill, the charge fails, and the line cannot be read.
package seqfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLong: the next line is longer than there is memory for. All before it were read; what comes
// after it cannot be.
var ErrLong = errors.New(
	"a line is too long for the memory that is left: what comes after it is not known")

// File is one that is open. Its last line's buffer stays as long as it is, so it must not be kept.
type File struct{ f *os.File }

// Open opens a file for reading.
func Open(name string) (*File, error) { return OpenAt(unix.AT_FDCWD, name) }

// OpenAt opens one whose name counts from a directory.
func OpenAt(dir int, name string) (*File, error) {
	spare()
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			unspare()
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return &File{os.NewFile(uintptr(fd), name)}, nil
	}
}

// Read reads as os.File does. ErrLong is final.
func (f *File) Read(b []byte) (int, error) {
	n, err := f.f.Read(b)
	if errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("read %s: %w", f.f.Name(), ErrLong)
	}
	return n, err
}

// Close must be called, once. A file that was only read has no error to tell.
func (f *File) Close() {
	_ = f.f.Close()
	unspare()
}
