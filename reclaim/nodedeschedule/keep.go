package nodedeschedule

import (
	"fmt"
	"slices"
	"time"
)

// keepReason returns the first rule that keeps a pod although a strategy selects it; empty: no
// rule. It applies the rules of DefaultEvictor that a node can check, in that order. Other rules
// (unknown priority, budgets, claims) are part of Pod.Protected or are skipped.
func (p *plan) keepReason(pod *Pod, strategy string) string {
	stale := strategy == StaleDuplicate // a newer pod of its name runs: nothing is lost
	switch {
	case pod.Protected != "":
		return pod.Protected
	case slices.Contains(p.ExcludeNamespaces, pod.Namespace):
		return "its namespace is in excludeNamespaces"
	case !pod.Ready:
		return "it has no ready sandbox; garbage collection removes it"
	case pod.EvictedBefore:
		return "it was recreated after an earlier eviction"
	case !stale && pod.Owner == "DaemonSet":
		return "its DaemonSet recreates it immediately"
	case !stale && pod.Owner == "" && !p.Unowned:
		return "it has no known owner that recreates it (evictUnowned)"
	case !stale && !p.LocalStorage && !pod.LocalStorage.OK:
		return "its use of local storage is unknown (evictLocalStorage)"
	case !stale && !p.LocalStorage && pod.LocalStorage.V:
		return "it uses local storage (evictLocalStorage)"
	}
	if why := p.youngReason(pod); why != "" {
		return why
	}
	switch {
	case len(p.out.Evictions) >= p.MaxPods:
		return fmt.Sprintf("limit reached: maxPods %d", p.MaxPods)
	case p.MaxPodsOfNamespace > 0 && p.evictionsIn[pod.Namespace] >= p.MaxPodsOfNamespace:
		return fmt.Sprintf("limit reached: maxPodsOfNamespace %d", p.MaxPodsOfNamespace)
	}
	return ""
}

func (p *plan) youngReason(pod *Pod) string {
	if p.MinAge == 0 {
		return ""
	}
	age, known := p.age(pod)
	switch {
	case !known:
		return "its age is unknown and minAge is " + p.MinAge.String()
	case age < p.MinAge:
		return fmt.Sprintf("its age %v is less than minAge %v", age.Round(time.Second), p.MinAge)
	}
	return ""
}

// age returns the age of a pod. The age is unknown if Since is in the future, as after a clock was
// set back.
func (p *plan) age(pod *Pod) (age time.Duration, known bool) {
	age = p.now.Sub(pod.Since)
	return age, !pod.Since.IsZero() && age >= 0
}
