package reload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// stamp tells whether files and folders are what they were: which file each path leads to, and when
// that was changed. It is not their content, for a mode that is changed may decide whether a file
// is taken.
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

// folders are those in which a change of a path is seen: its own, and where a symbolic link leads,
// that of the file itself. In a volume of a ConfigMap the one is where the link ..data is swapped,
// through which all others lead.
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
