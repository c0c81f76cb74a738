package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"jettison/cgroup"
	"jettison/internal/config"
	"jettison/internal/sources"
	"jettison/stats/read"
)

func treeCommand(stdout io.Writer) *cobra.Command {
	var flags lookFlags
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Print the files that jettison reads here, to send with a report",
		Long: `tree prints one txtar archive with the cgroup files that jettison reads, of the root, of what lies directly below it
and of all pods, and a few of /proc: enough to run jettison's tests on. It holds numbers, ids of pods and containers, process ids and the kernel's version; no
names, labels, annotations or content of pods.`,
		Example: "  jettison tree > node.txtar",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if flags.options.Config, err = config.Load(flags.path); err != nil {
				return usageError{err}
			}
			fs, err := sources.OpenCgroups(flags.options.Options)
			if err != nil {
				return err
			}
			defer fs.Close()
			archive, err := recordTree(fs, &flags)
			if err != nil {
				return err
			}
			_, err = stdout.Write(txtar.Format(archive))
			return err
		},
	}
	flags.addPlaces(cmd)
	return cmd
}

// recordedProc are the files of /proc that are recorded; of mountinfo only the lines of cgroup v2.
var recordedProc = []string{"meminfo", "pressure/memory", "pressure/cpu", "pressure/io", "vmstat", "zoneinfo", "loadavg", "stat", "sys/kernel/pid_max", "sys/kernel/threads-max", "self/mountinfo"}

// recordedSys are those of /sys.
var recordedSys = []string{"kernel/mm/lru_gen/enabled"}

func recordTree(fs *cgroup.FS, flags *lookFlags) (*txtar.Archive, error) {
	archive := &txtar.Archive{}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		archive.Comment = fmt.Appendf(nil, "Recorded on kernel %s by jettison tree.\n", unix.ByteSliceToString(name.Release[:]))
	}
	visit := func(path string, content []byte) {
		archive.Files = append(archive.Files, txtar.File{Name: "cgroup/" + path, Data: bytes.Clone(content)})
	}
	if err := fs.Record("", false, visit); err != nil {
		return nil, err
	}
	roots := read.TopRoots(flags.options.Config.CgroupRoot)
	for _, root := range roots {
		if err := fs.Record(root, true, visit); err != nil {
			return nil, fmt.Errorf("record /%s: %w", root, err)
		}
	}
	var others []string // what else there is at the top: the system's own
	if err := fs.Children("", make([]byte, 32<<10), func(name string) {
		if !slices.Contains(roots, name) {
			others = append(others, name)
		}
	}); err != nil {
		return nil, err
	}
	for _, name := range others {
		if err := fs.Record(name, false, visit); err != nil {
			return nil, fmt.Errorf("record /%s: %w", name, err)
		}
	}
	add := func(name, path string) {
		content, err := os.ReadFile(path)
		if err != nil { // this kernel does not have it
			return
		}
		if filepath.Base(path) == "mountinfo" {
			content = onlyCgroup2(content)
		}
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: content})
	}
	for _, name := range recordedProc {
		add("proc/"+name, filepath.Join(flags.options.ProcMount, name))
	}
	for _, name := range recordedSys {
		add("sys/"+name, filepath.Join(sysMount(flags.options), name))
	}
	return archive, nil
}

func onlyCgroup2(mountinfo []byte) (out []byte) {
	for line := range bytes.Lines(mountinfo) {
		if bytes.Contains(line, []byte(" - cgroup2 ")) {
			out = append(out, line...)
		}
	}
	return out
}
