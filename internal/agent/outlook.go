package agent

import (
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/apiconvert"
)

// outlook answers requests for the victim of each threshold. The loop computes the answer, because
// it ranks by its own objects, evictions in progress and breaker. ask is safe for concurrent use.
type outlook struct {
	requests chan chan<- *api.Outlook
	last     *api.Outlook  // used only by the loop
	took     time.Duration // of the last look at pods for an outlook; used only by the loop
}

// lookMargin is the multiple of such a look's duration that must fit into the time until the next
// look at the node.
const lookMargin = 2

func newOutlook() outlook { return outlook{requests: make(chan chan<- *api.Outlook)} }

// ask returns the current Outlook; nil if the loop hangs or does not run yet.
func (o *outlook) ask() any {
	timer := time.NewTimer(stateWait)
	defer timer.Stop()
	reply := make(chan *api.Outlook, 1)
	select {
	case o.requests <- reply:
	case <-timer.C:
		return nil
	}
	select {
	case answer := <-reply:
		return answer
	case <-timer.C:
		return nil
	}
}

// onOutlook answers a request, with a new Outlook at most once a second. While something is short,
// or may be before all pods are read, it uses the last look.
func (l *loop) onOutlook(now time.Time, reply chan<- *api.Outlook) {
	o := &l.publisher.outlook
	if o.last != nil && now.Sub(o.last.Time) < maxStateAge {
		reply <- o.last
		return
	}
	if ready := l.manager.Ready(now); !ready.HardMet && !ready.Evicting &&
		l.pace.Due(now, &ready) > lookMargin*o.took {
		began := time.Now()
		_ = l.looks.Pods(now, l.pods.All()) // decisions log the error
		o.took = time.Since(began)
	}
	in := eviction.Input{Summary: l.looks.Summary(), Pods: l.objects.Pods(),
		ObserveDisks: l.observeDisks()}
	o.last = &api.Outlook{
		Time: now, DryRun: l.o.DryRun, ObserveDisks: in.ObserveDisks,
		Thresholds: []api.ThresholdOutlook{}, HeldOff: l.nameHolds(l.gate.State(now)),
	}
	for _, t := range l.manager.Outlook(now, in) {
		o.last.Thresholds = append(o.last.Thresholds, apiconvert.Outlook(&t, l.pods.Name))
	}
	reply <- o.last
}
