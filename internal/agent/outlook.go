package agent

import (
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/apiconvert"
)

// outlook is where others ask whom each threshold would have evicted. The loop answers, for it
// alone knows: it ranks by its own objects, evictions under way and breaker. asks is for any
// goroutine.
type outlook struct {
	asks chan chan<- *api.Outlook
	last *api.Outlook  // the loop's
	took time.Duration // the last look at pods that was made for it; the loop's
}

// unhurried is how often such a look has to fit into the time until the next look at the node is
// due.
const unhurried = 2

func newOutlook() outlook { return outlook{asks: make(chan chan<- *api.Outlook)} }

// ask is the Outlook as of now, or nearly; nil: the loop hangs, or does not run yet.
func (o *outlook) ask() any {
	timer := time.NewTimer(stateWait)
	defer timer.Stop()
	reply := make(chan *api.Outlook, 1)
	select {
	case o.asks <- reply:
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

// onOutlook answers, at most once a second anew. While something is short, or may be before all
// pods are read, none is read for those who ask: the last look will do.
func (l *loop) onOutlook(now time.Time, reply chan<- *api.Outlook) {
	o := &l.shown.outlook
	if o.last != nil && now.Sub(o.last.Time) < fresh {
		reply <- o.last
		return
	}
	if ready := l.manager.Ready(now); !ready.HardMet && !ready.Evicting &&
		l.pace.Due(now, &ready) > unhurried*o.took {
		began := time.Now()
		_ = l.looks.Pods(now, l.pods.All()) // a decision says what is wrong
		o.took = time.Since(began)
	}
	in := eviction.Input{Summary: l.looks.Summary(), Pods: l.objects.Pods(),
		ObserveDisks: l.observeDisks()}
	o.last = &api.Outlook{
		Time: now, DryRun: l.o.DryRun, ObserveDisks: in.ObserveDisks,
		Thresholds: []api.ThresholdOutlook{}, HeldOff: l.gate.State(now),
	}
	for _, t := range l.manager.Outlook(now, in) {
		o.last.Thresholds = append(o.last.Thresholds, apiconvert.Outlook(&t, l.pods.Name))
	}
	reply <- o.last
}
