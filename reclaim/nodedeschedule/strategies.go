package nodedeschedule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// proposeDuplicates proposes all pods of one name with a ready sandbox except the newest. If the
// newest is unknown, all stay.
func (p *plan) proposeDuplicates() {
	type name struct{ namespace, name string }
	ready := map[name][]*Pod{}
	var order []name
	for i := range p.look.Pods {
		pod := &p.look.Pods[i]
		if !pod.Ready || pod.Name == "" {
			continue
		}
		of := name{pod.Namespace, pod.Name}
		if len(ready[of]) == 0 {
			order = append(order, of)
		}
		ready[of] = append(ready[of], pod)
	}
	for _, of := range order {
		pods := ready[of]
		if len(pods) < 2 {
			continue
		}
		slices.SortFunc(pods, func(a, b *Pod) int {
			return cmp.Or(b.Made.Compare(a.Made), byName(&a.PodReference, &b.PodReference))
		})
		unclear := slices.ContainsFunc(pods, func(pod *Pod) bool { return pod.Made.IsZero() }) ||
			pods[0].Made.Equal(pods[1].Made)
		for i, pod := range pods {
			switch {
			case unclear:
				p.proposed[pod.UID] = true
				p.out.Kept = append(p.out.Kept, Kept{pod.PodReference, StaleDuplicate,
					fmt.Sprintf("%d pods of its name run and the newest is unknown", len(pods))})
			case i > 0:
				by := pods[0].Made.Sub(pod.Made).Round(time.Second)
				p.propose(pod, StaleDuplicate, fmt.Sprintf("pod %s of the same name is newer, by %v", pods[0].UID,
					by))
			}
		}
	}
}

// failedReason returns a reason to evict a pod if all its containers have ended, at least one of
// them with an error, FailedAfter ago or earlier.
func (p *plan) failedReason(pod *Pod) string {
	if p.FailedAfter == 0 || len(pod.Containers) == 0 {
		return ""
	}
	var last time.Time
	worst := ""
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if !c.Exited || !c.Ended.OK || c.Ended.V.At.IsZero() {
			return ""
		}
		if end := c.Ended.V; end.Code != 0 && worst == "" {
			worst = fmt.Sprintf("container %s ended with %d", c.Name, end.Code)
			if end.Reason != "" {
				worst += " (" + end.Reason + ")"
			}
		}
		if c.Ended.V.At.After(last) {
			last = c.Ended.V.At
		}
	}
	if ago := p.now.Sub(last); worst != "" && ago >= p.FailedAfter {
		return fmt.Sprintf("failed: %s, the last one %v ago >= failedAfter %v", worst,
			ago.Truncate(time.Second), p.FailedAfter)
	}
	return ""
}

// restarts returns the number of restarts of a pod, from the containers that exist.
func (p *plan) restarts(pod *Pod) (sum uint64) {
	for i := range pod.Containers {
		if c := &pod.Containers[i]; !slices.Contains(p.IgnoreContainers, c.Name) {
			sum += c.Restarts
		}
	}
	return sum
}

// proposeRestarting proposes pods with many restarts, most restarts first.
func (p *plan) proposeRestarting(pods []Pod) {
	if p.MaxRestarts == 0 {
		return
	}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods,
		func(a, b Pod) int { return cmp.Compare(p.restarts(&b), p.restarts(&a)) })
	p.apply(pods, TooManyRestarts, func(pod *Pod) string {
		if n := p.restarts(pod); n >= p.MaxRestarts {
			return fmt.Sprintf("%d restarts >= maxRestarts %d", n, p.MaxRestarts)
		}
		return ""
	})
}

func (p *plan) ageReason(pod *Pod) string {
	if age, known := p.age(pod); p.MaxAge > 0 && known && age > p.MaxAge {
		return fmt.Sprintf("age %v > maxAge %v", age.Truncate(time.Second), p.MaxAge)
	}
	return ""
}

// rank orders classes: the class with the weakest guarantee is evicted first.
var rank = map[stats.QOSClass]int{stats.BestEffort: 0, stats.Burstable: 1, stats.Guaranteed: 2}

// proposeShed proposes pods until the node's memory usage is at ShedAbove: BestEffort ones first,
// the largest first. It assumes that the memory of pods already selected for eviction is freed. It
// skips pods of unknown class or memory usage.
func (p *plan) proposeShed() {
	if p.ShedAbove == 0 {
		return
	}
	whole, used := p.look.MemoryCapacity, p.look.MemoryInUse
	if !whole.OK || !used.OK || whole.V == 0 {
		p.out.Stopped = "the memory usage of the node is unknown"
		return
	}
	left := used.V
	var pods []*Pod
	for i := range p.look.Pods {
		pod := &p.look.Pods[i]
		_, classed := rank[pod.QOSClass]
		switch {
		case slices.ContainsFunc(p.out.Evictions, func(e Eviction) bool { return e.Pod.UID == pod.UID }):
			left -= min(left, pod.Memory.V)
		case pod.Memory.OK && pod.Memory.V > 0 && classed && !p.proposed[pod.UID]:
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(rank[a.QOSClass], rank[b.QOSClass]),
			cmp.Compare(b.Memory.V, a.Memory.V),
			byName(&a.PodReference, &b.PodReference))
	})
	for _, pod := range pods {
		percent := float64(left) / float64(whole.V) * 100
		if percent <= float64(p.ShedAbove) {
			return
		}
		if p.propose(pod, Shed, fmt.Sprintf("%.1f%% of the node's memory is in use > shedAbove %d%%",
			percent, p.ShedAbove)) {
			left -= min(left, pod.Memory.V)
		}
	}
}
