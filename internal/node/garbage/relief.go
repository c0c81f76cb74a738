package garbage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"jettison/eviction"
	"jettison/reclaim"
)

// Relieve runs a pass for the wishes of a Decision. It removes only garbage on the file systems of
// the wishes' signals, and first the garbage that frees the most bytes in the least time.
// Afterwards the caller takes a new look and calls Manager.StepAfterReclaim.
func (c *Collector) Relieve(ctx context.Context, wishes []eviction.ReclaimRequest) Result {
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

// relieving returns the steps that free space for the wishes, fastest first. It sorts in place.
func (c *Collector) relieving(steps []reclaim.Step, wishes []eviction.ReclaimRequest) []reclaim.Step {
	short, all := c.shortDevices(wishes)
	mayHelp := func(dir string) bool { // dir is, or may be, on a short device
		fs, err := c.statfs(dir)
		return all || err != nil || dir == "" || slices.Contains(short, fs.Device)
	}
	logs, layers, volumes := mayHelp(c.o.PodLogsDir), mayHelp(c.imageDir), mayHelp(c.o.RootDir)
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
	// Sort in place: with ten thousand dead containers a copy of the steps would be large.
	slices.SortStableFunc(steps, func(a, b reclaim.Step) int {
		g, other := groupOf(a.Action), groupOf(b.Action)
		if g == other && a.Action == reclaim.RemoveImage {
			return cmp.Compare(b.Bytes.V, a.Bytes.V)
		}
		return cmp.Or(cmp.Compare(pace[other], pace[g]), cmp.Compare(g, other))
	})
	return steps
}

// groups is the number of groups of steps. Steps of a group stay together.
const groups = 3

// groupOf returns the group of an action. Containers with their logs, sandboxes and cgroups are one
// group, because a sandbox is removed after its containers, and a cgroup after its sandbox.
func groupOf(a reclaim.Action) int {
	switch a {
	case reclaim.RemoveLogs, reclaim.RemoveLink, reclaim.RemoveVolumes:
		return 1
	case reclaim.RemoveImage:
		return 2
	}
	return 0
}

// shortDevices returns the devices of the wishes. all means that one of them is unknown.
func (c *Collector) shortDevices(wishes []eviction.ReclaimRequest) (devices []uint64, all bool) {
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

// paces holds the measured pace of removals, by action.
type paces map[reclaim.Action]pace

// pace is the duration and the freed bytes of one step, a moving average with weight 0.1 for the
// newest value.
type pace struct{ seconds, bytes float64 }

// defaultPaces returns the paces before any measurement: those of containerd on a small disk.
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

// of returns the expected bytes per second of all steps of a group together.
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
