// Package rivals finds what else on a node kills processes when it runs short: two killers that do not know of each other kill twice for
// one shortage.
package rivals

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Rival is a process that kills, too.
type Rival struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Why  string `json:"why"` // it matters
	Do   string `json:"do"`
}

// known are the killers by the name of their process, as /proc/PID/comm has it, or of the script that an interpreter runs.
var known = map[string]Rival{
	"systemd-oomd": {
		Why: "it kills whole cgroups for pressure of memory or swap where ManagedOOM is set, as Debian sets it for all, and knows no pods",
		Do:  "leave ManagedOOMMemoryPressure and ManagedOOMSwap off for kubepods.slice and all above it, -.slice too, or disable it",
	},
	"earlyoom": {
		Why: "it kills the process with the highest oom_score when memory and what there is of swap are short, whatever pod it is of",
		Do:  "disable it, or have it begin far below the threshold of memory.available",
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

// maxCmdline is how much of a command line is looked at.
const maxCmdline = 4 << 10

// Find looks through a node's processes. One agent is none; of several each one is named. The error says why nothing is known.
func Find(procMount string) ([]Rival, error) {
	if procMount == "" {
		procMount = "/proc"
	}
	entries, err := os.ReadDir(procMount)
	if err != nil {
		return nil, fmt.Errorf("look for other killers: %w", err)
	}
	var out, agents []Rival
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args := cmdline(filepath.Join(procMount, e.Name()))
		name := nameOf(args)
		if r, is := known[name]; is {
			r.Name, r.PID = name, pid
			out = append(out, r)
		}
		if name == agent && len(args) > 1 && args[1] == "run" {
			r := another
			r.Name, r.PID = agent+" run", pid
			agents = append(agents, r)
		}
	}
	if len(agents) > 1 {
		out = append(out, agents...)
	}
	return out, nil
}

// cmdline of a process; nil: it is the kernel's own, or gone.
func cmdline(dir string) (args []string) {
	f, err := os.Open(filepath.Join(dir, "cmdline"))
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, maxCmdline)
	n, _ := f.Read(b)
	for arg := range bytes.SplitSeq(bytes.TrimRight(b[:n], "\x00"), []byte{0}) {
		args = append(args, string(arg))
	}
	return args
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
