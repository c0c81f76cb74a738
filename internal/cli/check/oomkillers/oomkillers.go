// Package oomkillers finds other programs on a node that kill processes under memory pressure.
// Killers that do not know each other kill twice for one shortage.
package oomkillers

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"jettison/stats"
)

// Rival is another process that kills under memory pressure.
type Rival struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Pod  string `json:"pod,omitempty"` // UID of its pod; empty: not in a pod
	Why  string `json:"why"`           // reason to act
	Do   string `json:"do"`            // action for the operator
}

// known maps the name of a process, or of the script that an interpreter runs, to the killer.
var known = map[string]Rival{
	"systemd-oomd": {
		Why: "kills whole cgroups for memory or swap pressure where ManagedOOM is set (Debian sets it " +
			"for all) and does not know pods",
		Do: "keep ManagedOOMMemoryPressure and ManagedOOMSwap off for kubepods.slice and its parents " +
			"(also -.slice), or disable it",
	},
	"earlyoom": {
		Why: "kills the process with the highest oom_score if memory and swap are short, in any pod",
		Do:  "disable it, or set its limits far below the threshold of memory.available",
	},
	"nohang": {
		Why: "kills single processes, in any pod, if memory and swap are short or stall",
		Do:  "disable it, or set its limits far below the threshold of memory.available",
	},
	"oomd": {
		Why: "kills cgroups by its own rules",
		Do:  "disable it, or exclude pods from its rules",
	},
}

// agent is the program name of jettison; its command "run" kills.
const agent = "jettison"

// secondAgent is the advice for more than one agent.
var secondAgent = Rival{
	Why: "two agents decide by the same values, so two pods are evicted for one shortage",
	Do:  "stop all but one: most likely a host service runs in addition to a DaemonSet",
}

// inPod is the advice for a process of a pod with the name of a killer. Any pod can use any name.
var inPod = Rival{
	Why: "a process of this pod has this name: it kills only if the pod has the privileges",
	Do:  "identify the pod and its owner",
}

// maxHead is the largest part of a command line, and of a cgroup's path, that is read in bytes. The
// kernel's paths are not longer (PATH_MAX).
const maxHead = 4 << 10

// Find returns the killers among a node's processes. A single agent is not a rival; several are all
// returned. Find returns an error if the processes cannot be listed.
func Find(procMount string) ([]Rival, error) {
	if procMount == "" {
		procMount = "/proc"
	}
	entries, err := os.ReadDir(procMount)
	if err != nil {
		return nil, fmt.Errorf("search for other killers: %w", err)
	}
	var out, agents []Rival
	seen := map[Rival]bool{}
	add := func(to *[]Rival, r Rival) {
		if r.Pod != "" {
			r.Why, r.Do = inPod.Why, inPod.Do
			one := r
			if one.PID = 0; seen[one] { // one line for each pod and name
				return
			}
			seen[one] = true
		}
		*to = append(*to, r)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(procMount, e.Name())
		args := cmdline(dir)
		name := nameOf(args)
		if r, ok := known[name]; ok {
			r.Name, r.PID, r.Pod = name, pid, podOf(dir)
			add(&out, r)
		}
		if name == agent && len(args) > 1 && args[1] == "run" {
			r := secondAgent
			r.Name, r.PID, r.Pod = agent+" run", pid, podOf(dir)
			add(&agents, r)
		}
	}
	if len(agents) > 1 {
		out = append(out, agents...)
	}
	return out, nil
}

// podOf returns the UID of a process's pod; empty: not in a pod, or the process has ended.
func podOf(dir string) (uid string) {
	for line := range bytes.Lines(head(filepath.Join(dir, "cgroup"))) {
		// the line of cgroup v2 (cgroups(7))
		cgroup, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::"))
		if !ok {
			continue
		}
		parent := ""
		for name := range strings.SplitSeq(strings.Trim(string(cgroup), "/"), "/") {
			if uid := parsePod(parent, name); uid != "" {
				return uid
			}
			parent = path.Join(parent, name)
		}
	}
	return ""
}

// parsePod returns the UID of the pod that owns the cgroup; empty: not a pod's cgroup. If this
// process has its own cgroup namespace, the cgroups above the common ancestor show as ".."
// (cgroup_namespaces(7)).
func parsePod(parent, name string) (uid string) {
	hidden := path.Base(parent) == ".."
	if unit, ok := strings.CutSuffix(name, ".slice"); ok && hidden {
		parent, _, _ = strings.Cut(unit, "-pod")
		parent += ".slice"
	}
	if c, ok := stats.ParsePodCgroup(parent, name); ok && (c.QOSClass != "" || hidden) {
		return c.UID
	}
	return ""
}

// cmdline returns the command line of a process; nil: a kernel thread, or the process has ended.
func cmdline(dir string) (args []string) {
	text := head(filepath.Join(dir, "cmdline"))
	if len(text) == 0 {
		return nil
	}
	for arg := range bytes.SplitSeq(bytes.TrimRight(text, "\x00"), []byte{0}) {
		args = append(args, string(arg))
	}
	return args
}

// head returns the first maxHead bytes of a file in /proc; nil: the process has ended.
func head(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, maxHead)
	n, _ := f.Read(b)
	return b[:n]
}

// nameOf returns the name of a program, or of the script that Python runs.
func nameOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	name := filepath.Base(args[0])
	if len(name) >= 6 && name[:6] == "python" {
		for _, arg := range args[1:] {
			if arg != "" && arg[0] != '-' {
				return filepath.Base(arg)
			}
		}
	}
	return name
}
