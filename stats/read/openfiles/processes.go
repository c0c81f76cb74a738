package openfiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"jettison/cgroup"
	"jettison/stats"
)

// groups returns the pod's cgroups: the cgroups in the hierarchy with its UID in the name, and the
// cgroup that the runtime reports, if its name contains the UID.
func (f *Finder) groups(uid, cgroup string) (names []string) {
	take := func(root, name string) {
		if p, ok := stats.ParsePodCgroup(root, name); ok && p.UID == uid &&
			!slices.Contains(names, p.Path) {
			names = append(names, p.Path)
		}
	}
	for _, root := range f.roots {
		if err := f.fs.Children(root, f.buf, func(name string) { take(root, name) }); err != nil {
			f.out.cut = true
		}
	}
	if cgroup != "" {
		dir, base := path.Split(cgroup)
		take(strings.Trim(dir, "/"), base)
	}
	return names
}

// processes returns the processes in a cgroup and its descendants, as far as it can list them until
// a time. The rest of the turn is for their files.
func (f *Finder) processes(name string, until time.Time) (pids []int) {
	g, err := f.fs.Group(name)
	if err != nil {
		f.out.cut = f.out.cut || !errors.Is(err, cgroup.ErrVanished)
		return nil
	}
	defer g.Close()
	deep := f.walker.Walk(g, func(g *cgroup.Group) bool {
		// The processes of a threaded group cannot be read there: its parent lists them.
		_ = g.Procs(f.buf, func(pid int) {
			// 0: the process is in a PID namespace that is not below the agent's
			if pid == 0 || len(pids) >= maxProcesses {
				f.out.cut = true
				return
			}
			pids = append(pids, pid)
		})
		late := time.Now().After(until)
		f.out.cut = f.out.cut || late
		return len(pids) < maxProcesses && !late
	})
	f.out.cut = f.out.cut || deep || f.walker.Err() != nil
	return pids
}

// order sorts the processes: first by the bytes kept in the previous look, then by the bytes
// written to disks, largest first.
func (f *Finder) order(pids []int, before *Kept) []int {
	rank := make(map[int]uint64, min(len(pids), maxRanked))
	for i, pid := range pids {
		if kept := before.holders[pid]; kept > 0 {
			rank[pid] = 1<<63 + kept
		} else if i < maxRanked && len(pids) > 1 {
			rank[pid] = f.written(pid)
		}
	}
	slices.SortStableFunc(pids, func(a, b int) int { return cmp.Compare(rank[b], rank[a]) })
	return pids
}

// searchAll searches every process: first a bounded number of threads and descriptors of each,
// then the rest.
func (f *Finder) searchAll(ctx context.Context, pids []int) {
	var rest []int
	for _, pid := range pids {
		more, err := f.process(ctx, pid, firstRound)
		if err != nil {
			f.out.cut = true
			return
		}
		if more {
			rest = append(rest, pid)
		}
	}
	for _, pid := range rest {
		more, err := f.process(ctx, pid, lastRound)
		f.out.cut = f.out.cut || more || err != nil
		if err != nil {
			return
		}
	}
}

// written returns the bytes that a process has written to disks; 0: unknown.
func (f *Finder) written(pid int) uint64 {
	text := new([]byte)
	if f.guard.do(f.uid, pid,
		func() { *text, _ = os.ReadFile(fmt.Sprintf("%s/%d/io", f.proc, pid)) }) != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(*text), "\nwrite_bytes: ")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseUint(line, 10, 64)
	return n
}
