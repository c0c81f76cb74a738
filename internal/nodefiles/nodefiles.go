// Package nodefiles copies the files that the agent reads on a node into one archive, to send with a report and to run tests on. They
// hold numbers, ids of pods and containers, and process ids: no names, labels, annotations or content of pods.
package nodefiles

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"jettison/cgroup"
	"jettison/stats/read"
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
	"meminfo", "pressure/memory", "pressure/cpu", "pressure/io", "vmstat", "zoneinfo", "loadavg", "stat",
	"sys/kernel/pid_max", "sys/kernel/threads-max", "self/mountinfo",
}

// recordedSys are those of /sys.
var recordedSys = []string{"kernel/mm/lru_gen/enabled"}

// Archive has the cgroup files of the root, of what lies directly below it and of all pods, and a few of /proc and /sys. With an error it
// has what could be recorded.
func Archive(o Options) (*txtar.Archive, error) {
	archive := &txtar.Archive{}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		archive.Comment = fmt.Appendf(nil, "Recorded on kernel %s by jettison tree.\n", unix.ByteSliceToString(name.Release[:]))
	}
	err := addCgroups(archive, o)
	for _, name := range recordedProc {
		addFile(archive, "proc/"+name, filepath.Join(o.ProcMount, name))
	}
	for _, name := range recordedSys {
		addFile(archive, "sys/"+name, filepath.Join(o.SysMount, name))
	}
	return archive, err
}

func addCgroups(archive *txtar.Archive, o Options) error {
	visit := func(path string, content []byte) {
		archive.Files = append(archive.Files, txtar.File{Name: "cgroup/" + path, Data: bytes.Clone(content)})
	}
	if err := o.Cgroups.Record("", false, visit); err != nil {
		return err
	}
	roots := read.TopRoots(o.CgroupRoot)
	for _, root := range roots {
		if err := o.Cgroups.Record(root, true, visit); err != nil {
			return fmt.Errorf("record /%s: %w", root, err)
		}
	}
	var others []string // what else there is at the top: the system's own
	if err := o.Cgroups.Children("", make([]byte, 32<<10), func(name string) {
		if !slices.Contains(roots, name) {
			others = append(others, name)
		}
	}); err != nil {
		return err
	}
	for _, name := range others {
		if err := o.Cgroups.Record(name, false, visit); err != nil {
			return fmt.Errorf("record /%s: %w", name, err)
		}
	}
	return nil
}

// addFile adds a file, if this kernel has it.
func addFile(archive *txtar.Archive, name, path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		return
	}
	if filepath.Base(path) == "mountinfo" {
		content = onlyCgroup2(content)
	}
	archive.Files = append(archive.Files, txtar.File{Name: name, Data: content})
}

func onlyCgroup2(mountinfo []byte) (out []byte) {
	for line := range bytes.Lines(mountinfo) {
		if bytes.Contains(line, []byte(" - cgroup2 ")) {
			out = append(out, line...)
		}
	}
	return out
}
