package deliver

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// Rates of events: so many at once, and one more each eventEvery.
const (
	eventBurst = 25
	eventEvery = time.Second
)

// pacer bounds the rate of events.
type pacer struct {
	left int       // that may be sent at once
	at   time.Time // when it was last counted
	next time.Time // when one may be sent again; zero: nobody waits
}

// may takes the place of one event, or says when there is one.
func (p *pacer) may(now time.Time) bool {
	if n := int(now.Sub(p.at) / eventEvery); n > 0 {
		p.left, p.at = min(eventBurst, p.left+n), now
	}
	if p.next = (time.Time{}); p.left == 0 {
		p.next = p.at.Add(eventEvery)
		return false
	}
	p.left--
	return true
}

// events sends those that are due. An error: the API is away.
func (d *Deliverer) events(ctx context.Context) error {
	d.pace.next = time.Time{}
	for len(d.lost) > 0 {
		if ok, err := d.send(ctx, d.lost[0]); err != nil || !ok {
			return err
		}
		d.lost = d.lost[1:]
	}
	if !d.decided {
		return nil
	}
	for _, e := range d.entries {
		if !e.status && e.told == (verdict.Verdict{}) && d.status { // what is said depends on what became of the pod
			continue
		}
		for event := d.unsent(e); event != nil; event = d.unsent(e) {
			if ok, err := d.send(ctx, event); err != nil || !ok {
				return err
			}
			e.sent[event.Name] = true
		}
	}
	return nil
}

// unsent is the next event of an entry that the API does not have; nil: there is none.
func (d *Deliverer) unsent(e *entry) *v1.Event {
	for _, event := range verdict.Events(time.Now(), e.record, e.told, d.o.Node, !d.status) {
		if !e.sent[event.Name] {
			return event
		}
	}
	return nil
}

// send sends one event. !ok: its time has not come. One that is refused is given up.
func (d *Deliverer) send(ctx context.Context, event *v1.Event) (ok bool, err error) {
	if !d.pace.may(time.Now()) {
		return false, nil
	}
	switch err := d.o.API.CreateEvent(ctx, event); kube.Means(err) {
	case kube.None:
	case kube.Refused, kube.NotFound, kube.Changed: // its namespace is going, or a policy lets nobody
		d.o.Log.Warn("the API refuses an event: it is given up", "event", event.Namespace+"/"+event.Name, "error", err)
	default:
		return false, err
	}
	return true, nil
}
