package squeeze

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"jettison/cgroup"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// target is a pod's cgroup, kept open from the look until the end of the watch: the pod that was
// measured is the one that is reclaimed from.
type target struct {
	group   *cgroup.Group
	current uint64 // before the reclaim
	stat    cgroup.ReclaimStat
	asked   uint64             // bytes; 0: none
	after   cgroup.ReclaimStat // after the last chunk
}

func (t *target) close() { t.group.Close() }

// look reads the plan's input for every pod that may be reclaimed from. targets are by path. It
// ends early when it is stopped: unread pods are skipped. The error is set only if no pod could be
// read.
func (s *Worker) look(j *job) (targets map[string]*target, look *reclaim.MemoryLook, err error) {
	targets = map[string]*target{}
	look = &reclaim.MemoryLook{Above: map[string]reclaim.MemoryGroup{}, SwapFreeBytes: j.SwapFree,
		SwapKeepBytes: j.SwapKeep,
		Generations:   generations(s.o.SysMount)}
	names := make([]byte, 16<<10)
	for _, root := range podindex.PodRoots(s.o.CgroupRoot) {
		var pods []stats.PodCgroup
		if err := s.fs.Children(root, names, func(name string) {
			if p, ok := stats.ParsePodCgroup(root, name); ok && !j.Exempt[p.UID] &&
				!isWithin(j.Self, p.Path) &&
				(p.QOSClass == stats.BestEffort || p.QOSClass == stats.Burstable) {
				pods = append(pods, p)
			}
		}); err != nil {
			return targets, look, err
		}
		for _, p := range pods {
			if j.stop.Load() {
				return targets, look, nil
			}
			pod, t, podErr := s.pod(p)
			switch {
			case vanished(podErr):
				continue
			case podErr != nil:
				err = podErr
				continue
			}
			targets[p.Path] = t
			for _, path := range pod.Above {
				if _, ok := look.Above[path]; !ok {
					look.Above[path] = s.parentGroup(path)
				}
			}
			look.Pods = append(look.Pods, pod)
		}
	}
	if len(look.Pods) > 0 {
		err = nil // the readable ones are used
	}
	return targets, look, err
}

// isWithin reports whether a cgroup equals another one or is below it.
func isWithin(path, other string) bool {
	return path != "" && (path == other || strings.HasPrefix(path, other+"/"))
}

// pod reads one pod.
func (s *Worker) pod(p stats.PodCgroup) (out reclaim.MemoryPod, t *target, err error) {
	g, err := s.fs.Group(p.Path)
	if err != nil {
		return out, nil, err
	}
	t = &target{group: g}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	out = reclaim.MemoryPod{UID: p.UID, Cgroup: p.Path, QOSClass: p.QOSClass, Above: parents(p.Path)}
	if t.current, err = g.MemoryCurrent(s.buf); err != nil {
		return out, nil, err
	}
	if err = g.ReclaimStat(s.buf, &t.stat); err != nil {
		return out, nil, err
	}
	out.CurrentBytes = stats.Some(t.current)
	out.Lists = stats.Some(reclaim.MemoryLists{InactiveAnon: t.stat.InactiveAnon,
		ActiveAnon:   t.stat.ActiveAnon,
		InactiveFile: t.stat.InactiveFile, ActiveFile: t.stat.ActiveFile})
	out.ProtectedBytes = s.protected(g)
	out.SwapLeftBytes = s.swapLeft(g)
	var psi cgroup.PSIStats
	if g.Pressure(cgroup.Memory, s.buf, &psi) == nil && psi.HasSome {
		out.StallShare = stats.Some(psi.Some.Avg10 / 100)
	}
	return out, t, nil
}

// parents returns the paths of the cgroups above one, without the root.
func parents(path string) (out []string) {
	for i, c := range path {
		if c == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// parentGroup reads a cgroup above pods. Unreadable values are absent.
func (s *Worker) parentGroup(path string) (out reclaim.MemoryGroup) {
	g, err := s.fs.Group(path)
	if err != nil {
		return out
	}
	defer g.Close()
	if current, err := g.MemoryCurrent(s.buf); err == nil {
		out.CurrentBytes = stats.Some(current)
	}
	out.ProtectedBytes = s.protected(g)
	return out
}

// protected returns the larger of memory.min and memory.low, with "max" as the largest number;
// absent if one of them cannot be read.
func (s *Worker) protected(g *cgroup.Group) stats.Opt[uint64] {
	least, err := g.MemoryMin(s.buf)
	low, lowErr := g.MemoryLow(s.buf)
	if err != nil || lowErr != nil {
		return stats.Opt[uint64]{}
	}
	return stats.Some(max(bytes(least), bytes(low)))
}

func bytes(l cgroup.Limit) uint64 {
	if l.Unlimited {
		return math.MaxUint64
	}
	return l.Bytes
}

// swapLeft returns the unused part of the pod's memory.swap.max.
func (s *Worker) swapLeft(g *cgroup.Group) stats.Opt[uint64] {
	most, err := g.MemorySwapMax(s.buf)
	if err != nil {
		return stats.Opt[uint64]{}
	}
	used, err := g.MemorySwapCurrent(s.buf)
	if err != nil {
		return stats.Opt[uint64]{}
	}
	return stats.Some(bytes(most) - min(used, bytes(most)))
}

// refaulted returns the bytes that the pods read in again since the last chunk. A pod that is gone
// reads nothing. It is absent if the kernel does not count refaults, or if no pod could be read.
func (s *Worker) refaulted(targets map[string]*target) (out stats.Opt[uint64]) {
	page := uint64(os.Getpagesize())
	for _, t := range targets {
		var now cgroup.ReclaimStat
		if t.asked == 0 {
			continue
		}
		switch err := t.group.ReclaimStat(s.buf, &now); {
		case vanished(err):
			out.OK = true
		case err == nil && now.HasRefaults && t.after.HasRefaults:
			pages := now.RefaultAnon - min(t.after.RefaultAnon, now.RefaultAnon) +
				now.RefaultFile - min(t.after.RefaultFile, now.RefaultFile)
			out = stats.Some(out.V + pages*page)
		}
	}
	return out
}

// generations reports whether the multi-generational LRU is on: bit 0 of its switch
// (Documentation/admin-guide/mm/multigen_lru.rst). A kernel without it lacks the switch.
func generations(sysMount string) bool {
	text, err := os.ReadFile(filepath.Join(sysMount, "kernel/mm/lru_gen/enabled"))
	if err != nil {
		return false
	}
	bits, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 32)
	return err == nil && bits&1 != 0
}

// ErrNoReclaim reports a kernel without memory.reclaim: proactive reclaim is never possible.
var ErrNoReclaim = errors.New("this kernel has no memory.reclaim (it needs Linux 5.19)")

// describe adds the pod's cgroup to an error.
func describe(path string, err error) error {
	if errors.Is(err, os.ErrNotExist) && !vanished(err) {
		return fmt.Errorf("reclaim memory of cgroup /%s: %w", path, ErrNoReclaim)
	}
	return err
}
