// Package nodefiles copies the files that the agent reads on a node into one archive, to send with
// a report and to run tests on. They hold numbers, ids of pods and containers, and process ids: no
// names, labels, annotations or content of pods.
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

// Options say where the files are.
type Options struct {
	Cgroups    *cgroup.FS
	CgroupRoot string // of the configuration
	ProcMount  string
	SysMount   string
}

// recordedProc are the files of /proc that are recorded; of mountinfo only the lines of cgroup v2.
var recordedProc = []string{
	"meminfo", "pressure/memory", "pressure/cpu", "pressure/io", "vmstat", "zoneinfo", "loadavg",
	"stat",
	"sys/kernel/pid_max", "sys/kernel/threads-max", "self/mountinfo",
}

// recordedSys are those of /sys.
var recordedSys = []string{"kernel/mm/lru_gen/enabled"}

// Walk visits the cgroup files of the root, of what lies directly below it and of all pods, and a
// few of /proc and /sys, one by one: together they may be larger than the memory that there is for
// this. The content is valid during the call; an error of visit ends it. The error says what could
// not be visited; the rest was.
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
	ended error // of visit
}

func (w *walk) add(name string, content []byte) {
	if w.ended == nil {
		w.ended = w.visit(name, content)
	}
}

func (w *walk) cgroups() error {
	visit := func(path string, content []byte) { w.add("cgroup/"+path, content) }
	var errs []error // whoever makes too many cgroups hides none elsewhere
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
	var others []string // what else there is at the top: the system's own
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

// maxFile is the most of a file of /proc or /sys that is copied, in bytes.
const maxFile = 1 << 20

// file adds a file, if this kernel has it.
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
