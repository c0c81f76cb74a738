// Package oomkillers finds what else on a node kills processes when it runs short: two killers that
// do not know of each other kill twice for one shortage.
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

// Rival is a process that kills, too.
type Rival struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Pod  string `json:"pod,omitempty"` // UID of the pod that it is a process of; empty: of none
	Why  string `json:"why"`           // it matters
	Do   string `json:"do"`
}

// known are the killers by the name of their process, as /proc/PID/comm has it, or of the script
// that an interpreter runs.
var known = map[string]Rival{
	"systemd-oomd": {
		Why: "it kills whole cgroups for pressure of memory or swap where ManagedOOM is set, as Debian " +
			"sets it for all, and knows no pods",
		Do: "leave ManagedOOMMemoryPressure and ManagedOOMSwap off for kubepods.slice and all above " +
			"it, -.slice too, or disable it",
	},
	"earlyoom": {
		Why: "it kills the process with the highest oom_score when memory and what there is of swap " +
			"are short, whatever pod it is of",
		Do: "disable it, or have it begin far below the threshold of memory.available",
	},
	"nohang": {
		Why: "it kills single processes when memory and what there is of swap are short, or stall, whatever pod they are of",
		Do:  "disable it, or have it begin far below the threshold of memory.available",
	},
	"oomd": {
		Why: "it kills cgroups by rules of its own",
		Do:  "disable it, or leave pods out of its rules",
	},
}

// agent is this program's name; its command "run" kills.
const agent = "jettison"

// another is what is wrong with more than one agent.
var another = Rival{
	Why: "two agents decide by the same figures, so that two pods go for one shortage",
	Do:  "end all but one: a service of the host beside a DaemonSet, most likely",
}

// posing is what is wrong with a process of a pod that has such a name: whoever starts one gives it
// any.
var posing = Rival{
	Why: "a process of this pod calls itself so: it kills only if the pod is let",
	Do:  "see what the pod is, and who runs it",
}

// maxHead is how much of a command line is looked at, and of a cgroup's path: the kernel's are no
// longer (PATH_MAX).
const maxHead = 4 << 10

// Find looks through a node's processes. One agent is none; of several each one is named. The error
// says why nothing is known.
func Find(procMount string) ([]Rival, error) {
	if procMount == "" {
		procMount = "/proc"
	}
	entries, err := os.ReadDir(procMount)
	if err != nil {
		return nil, fmt.Errorf("look for other killers: %w", err)
	}
	var out, agents []Rival
	seen := map[Rival]bool{}
	add := func(to *[]Rival, r Rival) {
		if r.Pod != "" {
			r.Why, r.Do = posing.Why, posing.Do
			one := r
			if one.PID = 0; seen[one] { // a pod has one line of a name, however many processes
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
		if r, is := known[name]; is {
			r.Name, r.PID, r.Pod = name, pid, podOf(dir)
			add(&out, r)
		}
		if name == agent && len(args) > 1 && args[1] == "run" {
			r := another
			r.Name, r.PID, r.Pod = agent+" run", pid, podOf(dir)
			add(&agents, r)
		}
	}
	if len(agents) > 1 {
		out = append(out, agents...)
	}
	return out, nil
}

// podOf is the UID of the pod in whose cgroup a process is; empty: in none, or it is gone.
func podOf(dir string) (uid string) {
	for line := range bytes.Lines(head(filepath.Join(dir, "cgroup"))) {
		// cgroup v2's (cgroups(7))
		at, is := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::"))
		if !is {
			continue
		}
		parent := ""
		for name := range strings.SplitSeq(strings.Trim(string(at), "/"), "/") {
			if uid := podNamed(parent, name); uid != "" {
				return uid
			}
			parent = path.Join(parent, name)
		}
	}
	return ""
}

// podNamed is the UID of the pod whose cgroup has that name; empty: it is no pod's. Where the agent
// has a cgroup namespace of its own, what lies above the cgroups that it has in common with a
// process is ".." (cgroup_namespaces(7)).
func podNamed(parent, name string) (uid string) {
	hidden := path.Base(parent) == ".."
	if unit, is := strings.CutSuffix(name, ".slice"); is && hidden {
		parent, _, _ = strings.Cut(unit, "-pod")
		parent += ".slice"
	}
	if c, ok := stats.ParsePodCgroup(parent, name); ok && (c.QOSClass != "" || hidden) {
		return c.UID
	}
	return ""
}

// cmdline of a process; nil: it is the kernel's own, or gone.
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

// head is how a file of /proc begins; nil: it is gone.
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

// nameOf is the name of a program, or of the script that a Python runs.
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
