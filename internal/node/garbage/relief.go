package garbage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"jettison/eviction"
	"jettison/reclaim"
)

// Relieve makes a pass for what a Decision wishes for: what lies on the file systems whose signals
// ask for it, and first what gives the most bytes in the least time. Afterwards look again, and
// call Manager.Reclaimed.
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
	logs, layers, volumes := on(c.o.PodLogsDir), on(c.imageDir), on(c.o.RootDir)
	steps = slices.DeleteFunc(steps, func(s reclaim.Step) bool {
		switch s.Action {
		case reclaim.RemoveLogs, reclaim.RemoveLink:
			return !logs
		case reclaim.RemoveVolumes:
			return !volumes
		case reclaim.RemoveImage:
			return !layers
		}
		return false
	})
	var pace [groups]float64
	for g := range pace {
		pace[g] = c.paces.of(steps, g)
	}
	// In its place: of ten thousand dead containers another order of the steps would be as large as
	// they are.
	slices.SortStableFunc(steps, func(a, b reclaim.Step) int {
		g, other := groupOf(a.Action), groupOf(b.Action)
		if g == other && a.Action == reclaim.RemoveImage {
			return cmp.Compare(b.Bytes.V, a.Bytes.V)
		}
		return cmp.Or(cmp.Compare(pace[other], pace[g]), cmp.Compare(g, other))
	})
	return steps
}

// groups of steps keep together.
const groups = 3

// groupOf is that of an action: a container has a log, too; a sandbox goes after its containers, a
// cgroup after its sandbox.
func groupOf(a reclaim.Action) int {
	switch a {
	case reclaim.RemoveLogs, reclaim.RemoveLink, reclaim.RemoveVolumes:
		return 1
	case reclaim.RemoveImage:
		return 2
	}
	return 0
}

// shortDevices are the devices that wishes are for; all: one of them is not known.
func (c *Collector) shortDevices(wishes []eviction.Wish) (devices []uint64, all bool) {
	for _, w := range wishes {
		for _, signal := range w.Signals {
			dir := c.o.RootDir
			if name := string(signal); strings.HasPrefix(name, "imagefs.") ||
				strings.HasPrefix(name, "containerfs.") {
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
		reclaim.RemoveContainer: {0.1, 1 << 20}, reclaim.RemoveSandbox: {0.1, 16 << 10},
		reclaim.RemoveCgroup: {0.001, 0},
		reclaim.RemoveLogs:   {0.02, 1 << 20}, reclaim.RemoveLink: {0.001, 0},
		reclaim.RemoveVolumes: {1, 64 << 20},
		reclaim.RemoveImage:   {0.5, 64 << 20},
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

// of is how many bytes a second the steps of a group should give, all together.
func (p paces) of(steps []reclaim.Step, group int) float64 {
	seconds, bytes := 0.0, 0.0
	for i := range steps {
		s := &steps[i]
		if groupOf(s.Action) != group {
			continue
		}
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
