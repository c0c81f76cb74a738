package frames

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"jettison/internal/base/nearest"
	"jettison/internal/base/strict"
)

// check rejects implausible numbers and unknown names of sources.
func (a *Agent) check() (field, what string) {
	if a == nil {
		return "", ""
	}
	c := &firstFault{}
	c.number("memAvailableBytes", a.MemAvailableBytes)
	c.number("perCPUFreeBytes", a.PerCPUFreeBytes)
	c.number("memTotalBytes", a.MemTotalBytes)
	c.number("hugePagesBytes", a.HugePagesBytes)
	c.number("shrinkableBytes", a.ShrinkableBytes)
	c.number("allocatableLimitBytes", a.AllocatableLimitBytes)
	if a.PodsPIDs != nil {
		c.number("podsPIDs.max", &a.PodsPIDs.Max)
		c.number("podsPIDs.current", &a.PodsPIDs.Current)
	}
	if a.Swap != nil {
		c.number("swap.totalBytes", a.Swap.TotalBytes)
		c.number("swap.freeBytes", a.Swap.FreeBytes)
	}
	if p := a.Pressure; p != nil {
		c.stalls("pressure.cpu", p.CPU)
		c.stalls("pressure.memory", p.Memory)
		c.stalls("pressure.io", p.IO)
	}
	for _, name := range slices.Sorted(maps.Keys(a.SourceErrors)) {
		if clearerOf(name) == nil {
			field := "sourceErrors." + strict.Field(jsontext.Pointer("").AppendToken(name))
			c.fail(field, "unknown source"+nearest.Question(name, maps.Keys(clearers)))
		}
	}
	for uid, p := range a.Pods {
		if p != nil && p.isImplausible() { // rare: the field's name is computed only for errors
			p.check(c, "pods."+strict.Field(jsontext.Pointer("").AppendToken(uid)))
		}
	}
	return c.field, c.what
}

// firstFault keeps the first implausible number; among pods, which are unordered, the one with the
// first name.
type firstFault struct{ field, what string }

func (c *firstFault) fail(field, what string) {
	if c.what == "" || field < c.field && strings.HasPrefix(field, "pods.") &&
		strings.HasPrefix(c.field, "pods.") {
		c.field, c.what = field, what
	}
}

func (c *firstFault) number(field string, v *uint64) {
	if v != nil && *v > maxPlausible {
		c.fail(field, fmt.Sprintf("%d is implausibly large", *v))
	}
}

func (c *firstFault) stalls(field string, s *Stalls) {
	if s == nil {
		return
	}
	for i, shares := range []*Shares{s.Some, s.Full} {
		if shares == nil {
			continue
		}
		for j, v := range []*float64{shares.Over1s, shares.Over10s} {
			if v != nil && !(*v >= 0 && *v <= 1) {
				name := fmt.Sprintf("%s.%s.%s", field, []string{"some", "full"}[i],
					[]string{"over1s", "over10s"}[j])
				c.fail(name, fmt.Sprintf("%v is not a share: want 0 to 1", *v))
			}
		}
	}
}

// isImplausible reports whether a number of the pod is implausible.
func (p *AgentPod) isImplausible() bool {
	c := firstFault{}
	p.check(&c, "")
	return c.what != ""
}

func (p *AgentPod) check(c *firstFault, in string) {
	c.number(in+".threads", p.Threads)
	c.number(in+".processes", p.Processes)
	c.number(in+".anonBytes", p.AnonBytes)
	c.number(in+".shmemBytes", p.ShmemBytes)
	c.number(in+".swapBytes", p.SwapBytes)
	c.number(in+".refaultBytes", p.RefaultBytes)
	c.number(in+".kernelBytes", p.KernelBytes)
	c.number(in+".cpuNanoseconds", p.CPUNanoseconds)
	for i, r := range []*Range{p.ReleasedBytes, p.MemoryRequest, p.CPURequestMillis} {
		if r != nil {
			c.number(in+[]string{".releasedBytes", ".memoryRequest", ".cpuRequestMillis"}[i], &r.Max)
		}
	}
	if p.IO != nil {
		c.number(in+".io.readBytes", &p.IO.ReadBytes)
		c.number(in+".io.writeBytes", &p.IO.WriteBytes)
	}
	if p.Logs != nil {
		c.number(in+".logs.usedBytes", &p.Logs.UsedBytes)
		c.number(in+".logs.inodesUsed", &p.Logs.InodesUsed)
	}
	if t := p.PSITotals; t != nil {
		for i, v := range []*Totals{t.CPU, t.Memory, t.IO} {
			if v != nil && max(v.Some, v.Full) > maxPlausible {
				c.fail(in+".psiTotals."+[]string{"cpu", "memory", "io"}[i], "implausibly large")
			}
		}
	}
}
