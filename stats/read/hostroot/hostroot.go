// Package hostroot opens paths of the node as the node resolves them, from inside a container.
//
//	hostroot.go Root: directories and files below it
//	statfs.go   the file system of a path
package hostroot

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Root is the node's root directory as this process sees it: "/" outside a container, /proc/1/root
// in a container that shares the host's process IDs. Paths below it are resolved as on the host: an
// absolute symbolic link starts at the host's root again, and no path leads out of that root. Root
// is safe for use by several goroutines. Close it.
type Root struct {
	fd int

	mu    sync.Mutex
	disks map[uint64]knownDisk // by device of a file system
}

// Open opens a root directory; empty means "/".
func Open(path string) (*Root, error) {
	if path == "" {
		path = "/"
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the host's root %s: %w", path, err)
	}
	return &Root{fd: fd, disks: map[uint64]knownDisk{}}, nil
}

// Close closes the descriptor.
func (h *Root) Close() error { return unix.Close(h.fd) }

// Dir opens a directory of the host with O_PATH: entries can be opened relative to it, but it
// cannot be read. It follows symbolic links as the host does. The caller closes the descriptor.
// os.ErrNotExist: no such directory.
func (h *Root) Dir(path string) (fd int, err error) {
	return h.Open(path, unix.O_PATH|unix.O_DIRECTORY)
}

// File opens a file or a directory of the host for reading. It does not wait for a pipe's other
// end. os.ErrNotExist: no such file.
func (h *Root) File(path string) (*os.File, error) {
	fd, err := h.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Open opens a path of the host. flags are those of open(2); O_CLOEXEC is added.
func (h *Root) Open(path string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	rel := strings.TrimLeft(path, "/")
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat2(h.fd, rel, &how)
		switch err {
		case nil:
			return fd, nil
		case unix.EINTR, unix.EAGAIN: // EAGAIN: a rename raced with the resolution (openat2(2))
			continue
		}
		return -1, fmt.Errorf("open the host's %s: %w", path, err)
	}
}
