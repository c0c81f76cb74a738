package reload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// stamp returns a text that changes when any of the paths leads to another file, or its file or
// directory changes. It covers the change time instead of the content, because a changed mode may
// decide whether a file is accepted.
func stamp(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s: none\n", path)
			continue
		}
		s := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s: %d %d %d %d.%09d\n", path, s.Dev, s.Ino, s.Size, s.Ctim.Sec, s.Ctim.Nsec)
	}
	return b.String()
}

// folders returns the directories in which a change of a path is visible: its own, and through a
// symbolic link that of the file. In the volume of a ConfigMap, the first is where the link ..data
// is swapped, through which all others lead.
func folders(paths []string) []string {
	var out []string
	for _, path := range paths {
		out = append(out, filepath.Dir(path))
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			out = append(out, path)
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			out = append(out, filepath.Dir(real))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
