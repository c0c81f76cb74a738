package nodedeschedule

import (
	"fmt"
	"slices"
	"time"
)

// keeps says why a pod stays that a strategy wants gone: the first rule; empty: it goes. They are
// those of DefaultEvictor that a node can answer, and come in its order; what it asks of a cluster
// (priority where it is not known, budgets, claims) is in Protected or unknown.
func (p *plan) keeps(pod *Pod, strategy string) string {
	stale := strategy == StaleDuplicate // another one of its name is there: nothing is lost
	switch {
	case pod.Protected != "":
		return pod.Protected
	case slices.Contains(p.ExcludeNamespaces, pod.Namespace):
		return "excludeNamespaces has its namespace"
	case !pod.Ready:
		return "it has no ready sandbox: there is nothing to stop, garbage collection removes the rest"
	case pod.Before:
		return "it went for this before and came back: it would for ever"
	case !stale && pod.Owner == "DaemonSet":
		return "it is a DaemonSet's: it comes back at once"
	case !stale && pod.Owner == "" && !p.Unowned:
		return "nothing tells that it is made again (evictUnowned)"
	case !stale && !p.LocalStorage && !pod.LocalStorage.OK:
		return "whether it keeps files on the node is not known (evictLocalStorage)"
	case !stale && !p.LocalStorage && pod.LocalStorage.V:
		return "it keeps files on the node (evictLocalStorage)"
	}
	if why := p.young(pod); why != "" {
		return why
	}
	switch {
	case len(p.out.Evictions) >= p.MaxPods:
		return fmt.Sprintf("maxPods %d go already", p.MaxPods)
	case p.MaxPodsOfNamespace > 0 && p.spaces[pod.Namespace] >= p.MaxPodsOfNamespace:
		return fmt.Sprintf("maxPodsOfNamespace %d go already", p.MaxPodsOfNamespace)
	}
	return ""
}

func (p *plan) young(pod *Pod) string {
	if p.MinAge == 0 {
		return ""
	}
	age, known := p.age(pod)
	switch {
	case !known:
		return "its age is not known, and minAge is " + p.MinAge.String()
	case age < p.MinAge:
		return fmt.Sprintf("it is %v old, less than minAge %v", age.Round(time.Second), p.MinAge)
	}
	return ""
}

// age of a pod. One of the future, as after a clock was set back, has none that is known.
func (p *plan) age(pod *Pod) (age time.Duration, known bool) {
	age = p.now.Sub(pod.Since)
	return age, !pod.Since.IsZero() && age >= 0
}
