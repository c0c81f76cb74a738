package read

import (
	"errors"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// OutsideFinder finds running containers outside their pods' cgroups: the kubelet and the runtime use
// different cgroup drivers (kubernetes#106514), pods have no cgroups of their own
// (cgroupsPerQOS: false), or a process was moved. Use it from one goroutine at a time.
type OutsideFinder struct {
	proc    string
	roots   []string
	runtime func() int // its PID; 0: unknown
}

// NewOutsideFinder returns an OutsideFinder. proc is the node's /proc (empty: /proc), and runtime
// returns the PID of the container runtime, 0 if it is unknown.
func NewOutsideFinder(proc, cgroupRoot string, runtime func() int) *OutsideFinder {
	if proc == "" {
		proc = "/proc"
	}
	return &OutsideFinder{proc: proc, roots: podindex.PodRoots(cgroupRoot), runtime: runtime}
}

// place is the cgroup of a running container's first process.
type place struct {
	pod  *podindex.Pod
	c    *cri.Container
	path string
}

// Find sets Outside and Unlocated of each pod. It reads one file of /proc for each running
// container, so it belongs on the goroutine that lists the runtime's pods. The Index must not be
// shared yet.
func (f *OutsideFinder) Find(pods podindex.Index) {
	var all []place
	inside := true
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		p.Outside, p.Unlocated, p.Self = nil, nil, false
		for i := range p.Containers {
			c := &p.Containers[i]
			if !c.Running {
				continue
			}
			at, known, alive := f.cgroupOf(c.PID)
			switch {
			case !alive: // the runtime reports the end soon
			case !known:
				p.Unlocated = append(p.Unlocated, podindex.Unlocated{ID: c.ID})
			default:
				all = append(all, place{p, c, at})
				inside = inside && f.inside(p, at)
			}
		}
	}
	if !inside {
		f.locate(all)
	}
}

// cgroupOf returns the cgroup of a container's first process. known is false without a PID, or if the
// path is hidden by a cgroup namespace.
func (f *OutsideFinder) cgroupOf(pid int) (at string, known, alive bool) {
	if pid <= 0 {
		return "", false, true
	}
	at, known, err := procfs.CgroupOf(f.proc, pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) ||
		strings.HasSuffix(at, " (deleted)") {
		return "", false, false
	}
	return at, known && err == nil, true
}

// inside reports whether a path is in the cgroup of the pod that a Reader measures.
func (f *OutsideFinder) inside(p *podindex.Pod, at string) bool {
	if uid := f.podOf(at); uid != "" {
		return uid == p.PodRef.UID
	}
	own, ok := podCgroup(p.PodRef.UID, p.Cgroup)
	return ok && podindex.Within(at, own.Path)
}

// podOf returns the UID of the pod in whose cgroup below a root a path is; empty: none.
func (f *OutsideFinder) podOf(at string) (uid string) {
	for _, root := range f.roots {
		if rest, ok := strings.CutPrefix(at, root+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			if pod, ok := stats.ParsePodCgroup(root, name); ok {
				uid = pod.UID
			}
		}
	}
	return uid
}

// locate sorts out the containers that are not in their pods' cgroups.
func (f *OutsideFinder) locate(all []place) {
	node := newNode(f.proc, f.runtime())
	owners := f.owners(all, node)
	seen := map[string]bool{} // cgroups and processes that belong to a container already
	for i := range all {
		l := &all[i]
		if f.inside(l.pod, l.path) {
			continue
		}
		own := outermost(l)
		if f.podOf(own) != "" {
			own = ""
		}
		l.pod.Self = l.pod.Self || l.c.PID == os.Getpid() ||
			own != "" && node.self != "" && podindex.Within(node.self, own)
		if owners[own] != l.pod {
			own = ""
		}
		found := stats.OutsideContainer{ID: l.c.ID, Cgroup: own}
		key := own
		if own == "" {
			found.Process = f.sharedProcess(l, node)
			key = strconv.Itoa(l.c.PID)
		}
		if own == "" && found.Process.PID == 0 || seen[key] {
			l.pod.Unlocated = append(l.pod.Unlocated,
				podindex.Unlocated{ID: l.c.ID, Cgroup: l.path})
			continue
		}
		seen[key] = true
		l.pod.Outside = append(l.pod.Outside, found)
	}
}

// owners maps each cgroup with a process, and those above it, to the only pod with processes there.
// nil: it has processes of several pods, of the agent or the runtime, or is above a root.
func (f *OutsideFinder) owners(all []place, n *node) map[string]*podindex.Pod {
	out := map[string]*podindex.Pod{}
	add := func(at string, p *podindex.Pod) {
		for end := len(at); end > 0; end = strings.LastIndexByte(at[:end], '/') {
			if was, known := out[at[:end]]; known && was != p {
				out[at[:end]] = nil
			} else {
				out[at[:end]] = p
			}
		}
	}
	for i := range all {
		add(all[i].path, all[i].pod)
	}
	for _, at := range slices.Concat(f.roots, n.cgroups) {
		add(at, nil)
	}
	return out
}

// outermost returns the outermost cgroup with a container's ID in the path of the container's
// process. Empty: the path has none, or the ID is another container's. A container may create cgroups
// with any names below its own.
func outermost(l *place) string {
	at := ""
	for name := range strings.SplitSeq(l.path, "/") {
		at = path.Join(at, name)
		if id := idOf(name); id == l.c.ID {
			return at
		} else if id != "" {
			return ""
		}
	}
	return ""
}

// minID is the minimum length of a container's ID. Current runtimes use 64 hexadecimal digits.
const minID = 32

// idOf returns the container's ID in the name of a cgroup: ID, cri-containerd-ID.scope,
// SLICE:cri-containerd:ID. Empty: it is no container's cgroup, or that of CRI-O's monitor.
func idOf(name string) string {
	id := containerID(name)
	if len(id) < minID || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// node describes the processes that belong to no container.
type node struct {
	runtime  int
	boot     time.Time
	self     string   // cgroup of the agent; empty: unknown
	cgroups  []string // of the agent and the runtime
	mounts   []string // mount namespaces of the node and the agent
	readable bool     // all of this is known, except the runtime's process
}

func newNode(proc string, runtime int) *node {
	n := &node{runtime: runtime}
	p, err := procfs.Open(proc)
	if err == nil {
		_, n.boot, err = p.Stat()
		if self, ok, _ := p.SelfCgroup(); ok {
			n.self, n.cgroups = self, append(n.cgroups, self)
		}
		p.Close()
	}
	if at, ok, _ := procfs.CgroupOf(proc, runtime); ok && runtime > 1 {
		n.cgroups = append(n.cgroups, at)
	}
	n.readable = err == nil && !n.boot.IsZero()
	for _, who := range []string{"1", "self"} {
		target, err := os.Readlink(path.Join(proc, who, "ns/mnt"))
		n.mounts, n.readable = append(n.mounts, target), n.readable && err == nil
	}
	return n
}

// startSlack is the tolerance between a process's start and the runtime's times.
const startSlack = 2 * time.Second

// sharedProcess identifies the first process of a container in a cgroup with other processes. Zero:
// the process cannot be shown to be the container's. It must have started with the container, in a
// mount namespace of its own, and be in no other container or pod. The runtime may report any PID:
// process 1, its own, one that was reused.
func (f *OutsideFinder) sharedProcess(l *place, n *node) (none stats.ProcessID) {
	c := l.c
	if !n.readable || c.PID <= 1 || c.PID == os.Getpid() || c.PID == n.runtime ||
		f.podOf(l.path) != "" || c.CreatedAt.IsZero() || c.StartedAt.IsZero() {
		return none
	}
	for name := range strings.SplitSeq(l.path, "/") {
		if id := idOf(name); id != "" && id != c.ID {
			return none
		}
	}
	mounts, err := os.Readlink(path.Join(f.proc, strconv.Itoa(c.PID), "ns/mnt"))
	if err != nil || slices.Contains(n.mounts, mounts) {
		return none
	}
	ticks, err := procfs.StartTicks(f.proc, c.PID)
	if at := procfs.StartedAt(n.boot, ticks); err != nil || at.Before(c.CreatedAt.Add(-startSlack)) ||
		at.After(c.StartedAt.Add(startSlack)) {
		return none
	}
	return stats.ProcessID{PID: c.PID, Start: ticks}
}
