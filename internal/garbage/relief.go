package garbage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"jettison/eviction"
	"jettison/reclaim"
)

// Relieve makes a pass for what a Decision wishes for: what lies on the file systems whose signals ask for it, and first what gives the
// most bytes in the least time. Afterwards look again, and call Manager.Reclaimed.
func (c *Collector) Relieve(ctx context.Context, wishes []eviction.Wish) Result {
	q := request{trigger: reclaim.DiskPressure, act: true, wishes: wishes}
	for _, w := range wishes {
		switch w.What {
		case eviction.ReclaimContainers:
			q.what |= Containers
		case eviction.ReclaimImages:
			q.what |= Images
		}
	}
	return c.perform(ctx, q)
}

// relieving are the steps that help, in the order in which they help the fastest.
func (c *Collector) relieving(steps []reclaim.Step, wishes []eviction.Wish) []reclaim.Step {
	short, all := c.shortDevices(wishes)
	on := func(dir string) bool { // or may be
		fs, err := c.statfs(dir)
		return all || err != nil || dir == "" || slices.Contains(short, fs.Device)
	}
	logs, layers := on(c.o.PodLogsDir), on(c.imageDir)
	var groups [3][]reclaim.Step
	for _, s := range steps {
		switch s.Action {
		case reclaim.RemoveLogs, reclaim.RemoveLink:
			if logs {
				groups[1] = append(groups[1], s)
			}
		case reclaim.RemoveVolumes:
			if on(c.o.RootDir) {
				groups[1] = append(groups[1], s)
			}
		case reclaim.RemoveImage:
			if layers {
				groups[2] = append(groups[2], s)
			}
		default: // a container has a log, too; a sandbox goes after its containers, a cgroup after its sandbox
			groups[0] = append(groups[0], s)
		}
	}
	slices.SortStableFunc(groups[2], func(a, b reclaim.Step) int { return cmp.Compare(b.Bytes.V, a.Bytes.V) })
	slices.SortStableFunc(groups[:], func(a, b []reclaim.Step) int { return cmp.Compare(c.paces.of(b), c.paces.of(a)) })
	return slices.Concat(groups[:]...)
}

// shortDevices are the devices that wishes are for; all: one of them is not known.
func (c *Collector) shortDevices(wishes []eviction.Wish) (devices []uint64, all bool) {
	for _, w := range wishes {
		for _, signal := range w.Signals {
			dir := c.o.RootDir
			if name := string(signal); strings.HasPrefix(name, "imagefs.") || strings.HasPrefix(name, "containerfs.") {
				dir = c.imageDir
			} else if !strings.HasPrefix(name, "nodefs.") {
				return nil, true
			}
			fs, err := c.statfs(dir)
			if err != nil || dir == "" {
				return nil, true
			}
			devices = append(devices, fs.Device)
		}
	}
	return devices, len(devices) == 0
}

// paces are what removals have given and taken so far, by action.
type paces map[reclaim.Action]pace

// pace is what one step takes and gives: an average in which the newest tenth counts.
type pace struct{ seconds, bytes float64 }

// defaultPaces are those of containerd on a small disk before anything was measured.
func defaultPaces() paces {
	return paces{
		reclaim.RemoveContainer: {0.1, 1 << 20}, reclaim.RemoveSandbox: {0.1, 16 << 10}, reclaim.RemoveCgroup: {0.001, 0},
		reclaim.RemoveLogs: {0.02, 1 << 20}, reclaim.RemoveLink: {0.001, 0}, reclaim.RemoveVolumes: {1, 64 << 20},
		reclaim.RemoveImage: {0.5, 64 << 20},
	}
}

func (p paces) learn(d *Done) {
	const share = 0.1
	of, freed := p[d.Action], d.Freed
	if !freed.OK {
		freed = d.Bytes
	}
	of.seconds += share * (d.Took.Seconds() - of.seconds)
	if freed.OK {
		of.bytes += share * (float64(freed.V) - of.bytes)
	}
	p[d.Action] = of
}

// of is how many bytes a second steps should give, all together.
func (p paces) of(steps []reclaim.Step) float64 {
	seconds, bytes := 0.0, 0.0
	for i := range steps {
		s := &steps[i]
		bytes += float64(s.Bytes.V)
		if !s.Bytes.OK {
			bytes += p[s.Action].bytes
		}
		seconds += p[s.Action].seconds
	}
	if seconds <= 0 {
		return 0
	}
	return bytes / seconds
}
