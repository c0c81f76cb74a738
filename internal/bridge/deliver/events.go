package deliver

import (
	"context"
	"slices"
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

// waits tells that somebody waits for a place.
func (p *pacer) waits() bool { return !p.next.IsZero() }

// events sends those that are due. An error: the API is away.
func (d *Deliverer) events(ctx context.Context) error {
	d.pace.next = time.Time{}
	if !d.decided {
		return nil
	}
	d.lost = slices.DeleteFunc(d.lost, func(e *v1.Event) bool { return time.Since(e.LastTimestamp.Time) > verdict.EventsFor })
	for len(d.lost) > 0 && !d.losses.waits(time.Now()) {
		sent, err := d.send(ctx, d.lost[0], &d.losses)
		if err != nil || d.pace.waits() {
			return err
		}
		if sent {
			d.lost = d.lost[1:]
		}
	}
	for _, e := range d.entries {
		// What is said depends on what became of the pod. And an event names the record: an author who read that before his pod is failed could
		// write it to the pod himself, as if it had been.
		if !e.status && e.told.Act == verdict.Wait && d.status {
			continue
		}
		for event := d.unsent(e); event != nil && !e.events.waits(time.Now()); event = d.unsent(e) {
			sent, err := d.send(ctx, event, &e.events)
			if err != nil || d.pace.waits() {
				return err
			}
			if sent {
				e.sent[event.Name] = true
			}
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

// send sends one event. !sent: its time has not come, or it is refused and sent again. One whose namespace goes is given up.
func (d *Deliverer) send(ctx context.Context, event *v1.Event, again *retry) (sent bool, err error) {
	if !d.pace.may(time.Now()) {
		return false, nil
	}
	switch err := d.o.API.CreateEvent(ctx, event); kube.Means(err) {
	case kube.None:
		*again = retry{}
	case kube.NotFound:
		d.o.Log.Info("an event is given up: its namespace goes", "event", event.Namespace+"/"+event.Name, "error", err)
	case kube.Refused, kube.Changed, kube.Failing: // this one alone, it may be: others, and statuses, do not wait for it
		asked, _ := kube.AskAgain(err)
		again.failed(time.Now(), refusedPause, asked)
		d.o.Log.Warn("the API refuses an event: it is sent again", "event", event.Namespace+"/"+event.Name, "error", err)
		return false, nil
	default:
		if !d.alone(ctx, err, event.Namespace, event.InvolvedObject.Name) {
			return false, err
		}
		again.failed(time.Now(), refusedPause, 0)
		d.o.Log.Warn("the API takes too long for an event: it is sent again", "event", event.Namespace+"/"+event.Name, "error", err)
		return false, nil
	}
	return true, nil
}
