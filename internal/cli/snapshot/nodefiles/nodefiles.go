// Package nodefiles visits the files that the agent reads on a node, to archive them for bug
// reports and tests. The files hold numbers, pod and container IDs, and process IDs, but no names,
// labels, annotations or content of pods.
package nodefiles

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"jettison/cgroup"
	"jettison/internal/base/atomicfile"
	"jettison/stats/read/podindex"
)

// Options hold the locations of the files.
type Options struct {
	Cgroups    *cgroup.FS
	CgroupRoot string // cgroupRoot of the configuration
	ProcMount  string
	SysMount   string
}

// recordedProc lists the recorded files of /proc. Of mountinfo only the lines of cgroup v2 are
// kept.
var recordedProc = []string{
	"meminfo", "pressure/memory", "pressure/cpu", "pressure/io", "vmstat", "zoneinfo", "loadavg",
	"stat",
	"sys/kernel/pid_max", "sys/kernel/threads-max", "self/mountinfo",
}

// recordedSys lists the recorded files of /sys.
var recordedSys = []string{"kernel/mm/lru_gen/enabled"}

// Walk visits the cgroup files of the root, its children and all pods, and some files of /proc and
// /sys. It holds one file at a time, because all together may exceed the available memory. content
// is valid only during the call of visit; an error of visit ends the walk. Otherwise Walk visits
// all it can, and returns an error for the rest.
func Walk(o Options, visit func(name string, content []byte) error) error {
	w := walk{Options: o, visit: visit}
	err := w.cgroups()
	for _, name := range recordedProc {
		w.file("proc/"+name, filepath.Join(o.ProcMount, name))
	}
	for _, name := range recordedSys {
		w.file("sys/"+name, filepath.Join(o.SysMount, name))
	}
	if w.ended != nil {
		return w.ended
	}
	return err
}

type walk struct {
	Options
	visit func(name string, content []byte) error
	ended error // error of visit
}

func (w *walk) add(name string, content []byte) {
	if w.ended == nil {
		w.ended = w.visit(name, content)
	}
}

func (w *walk) cgroups() error {
	visit := func(path string, content []byte) { w.add("cgroup/"+path, content) }
	var errs []error // collected, so that too many cgroups of one parent hide no others
	record := func(name string, below bool) {
		if err := w.Cgroups.Record(name, below, visit); err != nil {
			errs = append(errs, fmt.Errorf("record /%s: %w", name, err))
		}
	}
	record("", false)
	roots := podindex.TopRoots(w.CgroupRoot)
	for _, root := range roots {
		record(root, true)
	}
	var others []string // other top-level cgroups, such as system.slice
	errs = append(errs, w.Cgroups.Children("", make([]byte, 32<<10), func(name string) {
		if !slices.Contains(roots, name) {
			others = append(others, name)
		}
	}))
	for _, name := range others {
		record(name, false)
	}
	return errors.Join(errs...)
}

// maxFile is the size limit of a copied file of /proc or /sys in bytes.
const maxFile = 1 << 20

// file adds a file if it exists.
func (w *walk) file(name, path string) {
	content, err := atomicfile.Read(path, maxFile, 0)
	if err != nil {
		return
	}
	if filepath.Base(path) == "mountinfo" {
		content = onlyCgroup2(content)
	}
	w.add(name, content)
}

func onlyCgroup2(mountinfo []byte) (out []byte) {
	for line := range bytes.Lines(mountinfo) {
		if bytes.Contains(line, []byte(" - cgroup2 ")) {
			out = append(out, line...)
		}
	}
	return out
}
