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

// target is a pod's cgroup, held open from the look until the end of the watch: what was looked at
// is what is asked.
type target struct {
	group   *cgroup.Group
	current uint64 // before
	stat    cgroup.ReclaimStat
	asked   uint64             // bytes; 0: it was not asked
	after   cgroup.ReclaimStat // when the last chunk was done
}

func (t *target) close() { t.group.Close() }

// look reads what a plan needs of every pod that may be asked. targets are by path. It ends early
// when it is stopped: what was not read is not asked. The error is what is wrong with all of them.
func (s *Squeezer) look(j *job) (targets map[string]*target, look *reclaim.MemoryLook, err error) {
	targets = map[string]*target{}
	look = &reclaim.MemoryLook{Above: map[string]reclaim.MemoryGroup{}, SwapFreeBytes: j.SwapFree,
		SwapKeepBytes: j.SwapKeep,
		Generations:   generations(s.o.SysMount)}
	names := make([]byte, 16<<10)
	for _, root := range podindex.PodRoots(s.o.CgroupRoot) {
		var pods []stats.PodCgroup
		if err := s.fs.Children(root, names, func(name string) {
			if p, ok := stats.ParsePodCgroup(root, name); ok && !j.Exempt[p.UID] &&
				!within(j.Self, p.Path) &&
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
			case gone(podErr):
				continue
			case podErr != nil:
				err = podErr
				continue
			}
			targets[p.Path] = t
			for _, path := range pod.Above {
				if _, ok := look.Above[path]; !ok {
					look.Above[path] = s.above(path)
				}
			}
			look.Pods = append(look.Pods, pod)
		}
	}
	if len(look.Pods) > 0 {
		err = nil // the others are asked
	}
	return targets, look, err
}

// within reports whether a cgroup is another one or lies below it.
func within(path, other string) bool {
	return path != "" && (path == other || strings.HasPrefix(path, other+"/"))
}

// pod reads one pod.
func (s *Squeezer) pod(p stats.PodCgroup) (out reclaim.MemoryPod, t *target, err error) {
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
	out = reclaim.MemoryPod{UID: p.UID, Cgroup: p.Path, QOSClass: p.QOSClass, Above: above(p.Path)}
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

// above are the paths of the cgroups above one, without the root.
func above(path string) (out []string) {
	for i, c := range path {
		if c == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// above reads a cgroup above pods. What cannot be read is absent.
func (s *Squeezer) above(path string) (out reclaim.MemoryGroup) {
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

// protected is the larger of memory.min and memory.low, "max" the greatest number there is; absent
// where one of them cannot be read.
func (s *Squeezer) protected(g *cgroup.Group) stats.Opt[uint64] {
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

// swapLeft is what memory.swap.max leaves of the pod's own.
func (s *Squeezer) swapLeft(g *cgroup.Group) stats.Opt[uint64] {
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

// refaulted is what the pods that were asked read in again since the last chunk, in bytes. One that
// is gone reads nothing. Absent: the kernel does not count it, or not one could be read.
func (s *Squeezer) refaulted(targets map[string]*target) (out stats.Opt[uint64]) {
	page := uint64(os.Getpagesize())
	for _, t := range targets {
		var now cgroup.ReclaimStat
		if t.asked == 0 {
			continue
		}
		switch err := t.group.ReclaimStat(s.buf, &now); {
		case gone(err):
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
// (Documentation/admin-guide/mm/multigen_lru.rst). A kernel that does not have it has no switch.
func generations(sysMount string) bool {
	text, err := os.ReadFile(filepath.Join(sysMount, "kernel/mm/lru_gen/enabled"))
	if err != nil {
		return false
	}
	bits, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 32)
	return err == nil && bits&1 != 0
}

// ErrNoReclaim: the kernel cannot be asked, and never will.
var ErrNoReclaim = errors.New("this kernel has no memory.reclaim (5.19 does)")

// described puts a pod's cgroup before what was the matter with it.
func described(path string, err error) error {
	if errors.Is(err, os.ErrNotExist) && !gone(err) {
		return fmt.Errorf("reclaim memory of cgroup /%s: %w", path, ErrNoReclaim)
	}
	return err
}
