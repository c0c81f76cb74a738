package taint

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// maxSeconds is the longest time that a Duration holds.
const maxSeconds = int64(math.MaxInt64 / time.Second / 2)

// deadline is when a pod has to go that has such tolerations, and the taint that it is because of; never, where each taint is tolerated for
// ever. Of each taint the first toleration that matches counts, as upstream has it. Toleration operators that compare are off, as they are
// by default (feature TaintTolerationComparisonOperators, 1.36.3). A pod that was made after a taint has its time from then on: from
// TimeAdded it would go at once, and so would each one that replaces it there.
func deadline(taints []v1.Taint, p *v1.Pod, now time.Time) (at time.Time, by *v1.Taint, ever bool) {
	made := p.CreationTimestamp.Time
	if made.After(now) {
		made = now
	}
	for i := range taints {
		t := &taints[i]
		since := t.TimeAdded.Time
		if toleration := first(t, p.Spec.Tolerations); toleration != nil {
			if toleration.TolerationSeconds == nil {
				continue
			}
			if made.After(since) {
				since = made
			}
			since = since.Add(time.Duration(min(max(*toleration.TolerationSeconds, 0), maxSeconds)) * time.Second)
		}
		if !ever || since.Before(at) {
			at, by, ever = since, t, true
		}
	}
	return at, by, ever
}

// first is the first toleration that matches a taint; nil: none does.
func first(t *v1.Taint, tolerations []v1.Toleration) *v1.Toleration {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(klog.Logger{}, t, false) {
			return &tolerations[i]
		}
	}
	return nil
}
