// Package socketpath stores the path of the agent's socket in the state directory, for commands that
// connect to it.
package socketpath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// maxPath is the maximum length of a unix socket's path (sun_path without its terminator; v6.12
// include/uapi/linux/un.h).
const maxPath = 107

// leftFile is the file in the state directory with the path of the agent's socket.
const leftFile = "socket.path"

// Store stores the path of the agent's socket in stateDir (empty: nowhere), for programs with a
// newer configuration: socket is read only at the start. An empty path removes the file. Only the
// agent that owns stateDir may call it.
func Store(stateDir, path string) error {
	if stateDir == "" {
		return nil
	}
	file := filepath.Join(stateDir, leftFile)
	atomicfile.Clean(file)
	if path == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	return atomicfile.Replace(file, func(f *os.File) error {
		_, err := f.WriteString(path + "\n")
		return err
	})
}

// Load returns the path that Store stored in stateDir last; empty: none, or unreadable. The agent
// may not listen there any more.
func Load(stateDir string) string {
	if stateDir == "" {
		return ""
	}
	text, err := atomicfile.Read(filepath.Join(stateDir, leftFile), maxPath+1, unix.O_NOFOLLOW)
	path := strings.TrimSuffix(string(text), "\n")
	if err != nil || len(path) > maxPath || !filepath.IsAbs(path) ||
		strings.ContainsAny(path, "\x00\n") {
		return ""
	}
	return path
}
