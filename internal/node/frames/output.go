package frames

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/eviction"
)

// Output has the decisions on one frame. Its lists are never null.
type Output struct {
	Time          string     `json:"time"`       // of the frame, in its original form
	Conditions    []string   `json:"conditions"` // of the node, before any reclaim, sorted
	ThresholdsMet []Met      `json:"thresholdsMet"`
	Reclaimed     []string   `json:"reclaimed"` // in the order run
	Evictions     []Eviction `json:"evictions"`
	Ranking       []string   `json:"ranking"` // UIDs, if a pod is evicted for a threshold
	Admit         []Admitted `json:"admit"`
}

// Met is a threshold that is met, before any reclaim and regardless of its grace period, as in
// messages.
type Met struct {
	Signal    string `json:"signal"`
	Observed  string `json:"observed"`
	Threshold string `json:"threshold"`
	Since     string `json:"since"` // RFC 3339 in UTC
}

// Eviction is the eviction of one pod.
type Eviction struct {
	UID                string `json:"uid"`
	Namespace          string `json:"namespace"`
	Name               string `json:"name"`
	Signal             string `json:"signal"`
	GracePeriodSeconds int64  `json:"gracePeriodSeconds"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// Admitted is the decision on one pod of Frame.Admit.
type Admitted struct {
	UID     string `json:"uid"`
	Admit   bool   `json:"admit"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func newOutput(f *Frame, d *eviction.Decision) *Output {
	o := &Output{
		Time: f.Time, Conditions: make([]string, 0, len(d.Conditions)),
		ThresholdsMet: make([]Met, 0, len(d.Met)),
		Reclaimed:     []string{}, Evictions: []Eviction{}, Ranking: []string{}, Admit: []Admitted{},
	}
	for _, c := range d.Conditions {
		o.Conditions = append(o.Conditions, string(c))
	}
	for _, m := range d.Met {
		o.ThresholdsMet = append(o.ThresholdsMet, Met{
			Signal: string(m.Threshold.Signal), Observed: m.ObservedText(), Threshold: m.LimitText(),
			Since: m.Since.UTC().Format(time.RFC3339Nano),
		})
	}
	for _, w := range d.Reclaim {
		o.Reclaimed = append(o.Reclaimed, string(w.What))
	}
	o.add(d)
	return o
}

// add appends the evictions of a step, or of its second half.
func (o *Output) add(d *eviction.Decision) {
	for i := range d.Evictions {
		e := &d.Evictions[i]
		ref := e.Pod.PodRef
		o.Evictions = append(o.Evictions, Eviction{
			UID: ref.UID, Namespace: ref.Namespace, Name: ref.Name, Signal: string(e.Signal),
			GracePeriodSeconds: e.GracePeriodSeconds, Reason: e.Reason, Message: e.Message,
		})
	}
	for i := range d.Ranking {
		if len(d.Evictions) > 0 {
			o.Ranking = append(o.Ranking, d.Ranking[i].Pod.PodRef.UID)
		}
	}
}

// admit decides on the pods of Frame.Admit, by the frame's conditions.
func (o *Output) admit(pods []v1.Pod) {
	for i := range pods {
		r := admit.UnderPressure(o.Conditions, &pods[i])
		o.Admit = append(o.Admit, Admitted{UID: string(pods[i].UID), Admit: r.Admit, Reason: r.Reason,
			Message: r.Message})
	}
}
