package summaryv1

import (
	"fmt"
	"math"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/base/strict"
)

// maxPlausible is the largest plausible number. The API's types permit larger ones and, for tasks, negative
// ones.
const maxPlausible = math.MaxInt64

// checker keeps the first error.
type checker struct{ err *strict.FieldError }

func (c *checker) fail(what, field string, args ...any) {
	if c.err == nil {
		c.err = strict.NewFieldError(fmt.Sprintf(field, args...), what)
	}
}

// Check rejects a Summary from outside with pods that have a missing or duplicate UID. It returns a
// *strict.FieldError with a JSON path as its field, for example pods[3].podRef.uid.
func Check(s *v1alpha1.Summary) error {
	seen := make(map[string]int, len(s.Pods))
	for i := range s.Pods {
		uid := s.Pods[i].PodRef.UID
		field := fmt.Sprintf("pods[%d].podRef.uid", i)
		if uid == "" {
			return strict.NewFieldError(field, "missing")
		}
		if before, twice := seen[uid]; twice {
			return strict.NewFieldError(field, fmt.Sprintf("%.64q is not unique, first in pods[%d]", uid, before))
		}
		seen[uid] = i
	}
	return nil
}

// Implausible returns the first implausible figure of a Summary from outside; nil: none. Figures
// are implausible if they or a sum of them exceed 2^63-1, negative numbers of tasks, and shares of
// time that are no percentage. The field is a JSON path, as in Check.
//
// The kubelet passes on such figures: the statistics of a CephFS claim have 2^64-1 free inodes, and
// a difference of two figures may be below 0.
func Implausible(s *v1alpha1.Summary) *strict.FieldError {
	var c checker
	c.node(&s.Node)
	for i := range s.Pods {
		if c.err != nil {
			break
		}
		if !c.pod(&s.Pods[i]) {
			c.err.Field = fmt.Sprintf("pods[%d].%s", i, c.err.Field)
		}
	}
	return c.err
}

func (c *checker) node(n *v1alpha1.NodeStats) {
	c.memory("node.memory", n.Memory)
	c.cpu("node.cpu", n.CPU)
	c.fs("node.fs", n.Fs)
	c.swap("node.swap", n.Swap)
	if n.IO != nil {
		c.psi("node.io", n.IO.PSI)
	}
	if n.Runtime != nil {
		c.fs("node.runtime.imageFs", n.Runtime.ImageFs)
		c.fs("node.runtime.containerFs", n.Runtime.ContainerFs)
	}
	if r := n.Rlimit; r != nil {
		for i, v := range [...]*int64{r.MaxPID, r.NumOfRunningProcesses} {
			if v != nil && *v < 0 {
				c.fail(fmt.Sprintf("%d is negative", *v), "node.rlimit.%s", [...]string{"maxpid", "curproc"}[i])
			}
		}
	}
	for i := range n.SystemContainers {
		if n.SystemContainers[i].Name == v1alpha1.SystemContainerPods && c.err == nil {
			c.memory(fmt.Sprintf("node.systemContainers[%d].memory", i), n.SystemContainers[i].Memory)
		}
	}
}

// pod checks a pod, and names fields below it. It reports whether it found no error.
func (c *checker) pod(p *v1alpha1.PodStats) bool {
	c.memory("memory", p.Memory)
	c.cpu("cpu", p.CPU)
	c.swap("swap", p.Swap)
	c.fs("ephemeral-storage", p.EphemeralStorage)
	if p.IO != nil {
		c.psi("io", p.IO.PSI)
	}
	if p.ProcessStats != nil {
		c.number("process_stats", "process_count", p.ProcessStats.ProcessCount)
	}
	for i := range p.VolumeStats {
		if v := &p.VolumeStats[i].FsStats; c.fsIsImplausible(v) {
			c.fs(fmt.Sprintf("volume[%d]", i), v)
		}
	}
	for i := range p.Containers {
		v := &p.Containers[i]
		before := c.err == nil
		c.memory("memory", v.Memory)
		c.cpu("cpu", v.CPU)
		c.swap("swap", v.Swap)
		c.fs("rootfs", v.Rootfs)
		c.fs("logs", v.Logs)
		if before && c.err != nil {
			c.err.Field = fmt.Sprintf("containers[%d].%s", i, c.err.Field)
		}
	}
	return c.err == nil
}

func (c *checker) number(in, name string, v *uint64) {
	if v != nil && *v > maxPlausible {
		c.fail(fmt.Sprintf("%d is implausibly large", *v), "%s.%s", in, name)
	}
}

func (c *checker) memory(in string, m *v1alpha1.MemoryStats) {
	if m == nil {
		return
	}
	c.number(in, "availableBytes", m.AvailableBytes)
	c.number(in, "usageBytes", m.UsageBytes)
	c.number(in, "workingSetBytes", m.WorkingSetBytes)
	c.number(in, "rssBytes", m.RSSBytes)
	c.number(in, "pageFaults", m.PageFaults)
	c.number(in, "majorPageFaults", m.MajorPageFaults)
	if v := sum(m.AvailableBytes, m.WorkingSetBytes); v.V > maxPlausible {
		c.fail("the sum with workingSetBytes is implausibly large", "%s.availableBytes", in)
	}
	c.psi(in, m.PSI)
}

func (c *checker) cpu(in string, v *v1alpha1.CPUStats) {
	if v == nil {
		return
	}
	c.number(in, "usageNanoCores", v.UsageNanoCores)
	c.number(in, "usageCoreNanoSeconds", v.UsageCoreNanoSeconds)
	c.psi(in, v.PSI)
}

func (c *checker) swap(in string, v *v1alpha1.SwapStats) {
	if v == nil {
		return
	}
	c.number(in, "swapAvailableBytes", v.SwapAvailableBytes)
	c.number(in, "swapUsageBytes", v.SwapUsageBytes)
	if v := sum(v.SwapAvailableBytes, v.SwapUsageBytes); v.V > maxPlausible {
		c.fail("the sum with swapUsageBytes is implausibly large", "%s.swapAvailableBytes", in)
	}
}

// fsIsImplausible reports an implausible number. It is checked first because that is rare, so that names
// need not be built.
func (c *checker) fsIsImplausible(v *v1alpha1.FsStats) bool {
	for _, n := range [...]*uint64{v.AvailableBytes, v.CapacityBytes, v.UsedBytes, v.InodesFree,
		v.Inodes, v.InodesUsed} {
		if n != nil && *n > maxPlausible {
			return true
		}
	}
	return false
}

func (c *checker) fs(in string, v *v1alpha1.FsStats) {
	if v == nil || !c.fsIsImplausible(v) {
		return
	}
	c.number(in, "availableBytes", v.AvailableBytes)
	c.number(in, "capacityBytes", v.CapacityBytes)
	c.number(in, "usedBytes", v.UsedBytes)
	c.number(in, "inodesFree", v.InodesFree)
	c.number(in, "inodes", v.Inodes)
	c.number(in, "inodesUsed", v.InodesUsed)
}

// psi checks the averages, which are percentages, and the totals.
func (c *checker) psi(in string, p *v1alpha1.PSIStats) {
	if p == nil {
		return
	}
	for i, d := range [...]*v1alpha1.PSIData{&p.Some, &p.Full} {
		for j, share := range [...]float64{d.Avg10, d.Avg60, d.Avg300} {
			if !(share >= 0 && share <= 100) {
				window := [...]string{"avg10", "avg60", "avg300"}[j]
				c.fail(fmt.Sprintf("%v is not a percentage", share), "%s.psi.%s.%s", in,
					[...]string{"some", "full"}[i], window)
			}
		}
		if d.Total > maxPlausible {
			c.fail(fmt.Sprintf("%d is implausibly large", d.Total), "%s.psi.%s.total", in,
				[...]string{"some", "full"}[i])
		}
	}
}
