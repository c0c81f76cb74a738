// Package socketpath keeps in the state directory the path of the socket at which the agent
// listens, for commands that ask it.
package socketpath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// maxPath is how long the path of a unix socket may be (sun_path less its end; v6.12
// include/uapi/linux/un.h).
const maxPath = 107

// leftFile is in the state directory, with the path of the socket at which the agent listens that
// keeps its state there.
const leftFile = "socket.path"

// Leave writes into stateDir (empty: nowhere) at which path the agent listens, for programs that go
// by a configuration which has changed since: socket is read only at the start. path empty: at
// none. It is for the one agent that keeps its state there.
func Leave(stateDir, path string) error {
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

// Left is the path that Leave has left in stateDir last; empty: none, or it cannot be read. No
// process may listen there any more.
func Left(stateDir string) string {
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
