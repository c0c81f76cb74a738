package agent

import (
	"context"
	"errors"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/nodestats"
	"jettison/internal/node/apiconvert"
	"jettison/stats"
)

// outlookLimit is the timeout of a request for an Outlook. Clients wait a little longer.
const outlookLimit = 4 * time.Second

// errLoopHangs reports that the loop does not take a request.
var errLoopHangs = errors.New("the agent's loop does not answer: it hangs or does not run yet")

// outlook answers requests for the victim of each threshold. The taker reads the pods for them
// outside of the loop, so that reading delays no kill. The loop ranks these pods, because it ranks
// by its own objects, evictions in progress and breaker.
type outlook struct {
	taker    *nodestats.Taker
	requests chan outlookRequest
	last     *api.Outlook // belongs to the function that the taker calls
}

// outlookRequest asks the loop to rank the pods of a Summary.
type outlookRequest struct {
	summary *stats.Summary // valid until the reply
	reply   chan<- *api.Outlook
}

func newOutlook(taker *nodestats.Taker) outlook {
	return outlook{taker: taker, requests: make(chan outlookRequest)}
}

// ask returns an Outlook whose reading of the pods began at most a second before the call. Old disk
// usage has its time, and is measured for a later Outlook, because that takes up to minutes. ask is
// safe for concurrent use.
func (o *outlook) ask(ctx context.Context) (*api.Outlook, error) {
	o.taker.MeasureDisks()
	ctx, cancel := context.WithTimeout(ctx, outlookLimit)
	defer cancel()
	got := make(chan *api.Outlook, 1)
	if err := o.taker.Read(ctx, func(s *stats.Summary) { got <- o.rank(ctx, s) }); err != nil {
		return nil, err
	}
	if answer := <-got; answer != nil {
		return answer, nil
	}
	return nil, errLoopHangs
}

// rank lets the loop rank the pods of a Summary, once for each; nil if the loop hangs.
func (o *outlook) rank(ctx context.Context, s *stats.Summary) *api.Outlook {
	if o.last != nil && o.last.Time.Equal(s.Time) {
		return o.last
	}
	timer := time.NewTimer(stateWait)
	defer timer.Stop()
	reply := make(chan *api.Outlook, 1)
	select {
	case o.requests <- outlookRequest{s, reply}:
		o.last = <-reply // soon: ranking does not block
		return o.last
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// onOutlook ranks the pods of a request.
func (l *loop) onOutlook(now time.Time, r outlookRequest) {
	in := eviction.Input{Summary: r.summary, Pods: l.objects.Pods(), ObserveDisks: l.observeDisks()}
	out := &api.Outlook{
		Time: r.summary.Time, DryRun: l.o.DryRun, ObserveDisks: in.ObserveDisks,
		Thresholds: []api.ThresholdOutlook{}, HeldOff: l.nameHolds(l.gate.State(now)),
	}
	for _, t := range l.manager.Outlook(now, in) {
		out.Thresholds = append(out.Thresholds, apiconvert.Outlook(&t, l.pods.Name))
	}
	r.reply <- out
}
