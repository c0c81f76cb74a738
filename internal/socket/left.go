package socket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/internal/wholefile"
)

// leftFile is in the state directory, with the path of the socket at which the agent listens that keeps its state there.
const leftFile = "socket.path"

// Leave writes into stateDir (empty: nowhere) at which path the agent listens, for programs that go by a configuration which has changed
// since: socket is read only at the start. path empty: at none. It is for the one agent that keeps its state there.
func Leave(stateDir, path string) error {
	if stateDir == "" {
		return nil
	}
	file := filepath.Join(stateDir, leftFile)
	wholefile.Clean(file)
	if path == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	return wholefile.Replace(file, func(f *os.File) error {
		_, err := f.WriteString(path + "\n")
		return err
	})
}

// Left is the path that Leave has left in stateDir last; empty: none, or it cannot be read. No process may listen there any more.
func Left(stateDir string) string {
	if stateDir == "" {
		return ""
	}
	text, err := wholefile.Read(filepath.Join(stateDir, leftFile), maxPath+1, unix.O_NOFOLLOW)
	path := strings.TrimSuffix(string(text), "\n")
	if err != nil || len(path) > maxPath || !filepath.IsAbs(path) || strings.ContainsAny(path, "\x00\n") {
		return ""
	}
	return path
}
