package deliver

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
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
		p.left, p.at = min(eventBurst, p.left+n), p.at.Add(time.Duration(n)*eventEvery)
	}
	if p.left == eventBurst {
		p.at = now
	}
	if p.next = (time.Time{}); p.left == 0 {
		p.next = p.at.Add(eventEvery)
		return false
	}
	p.left--
	return true
}

// events sends the next one that is due, if none is on its way. Nobody waits for it: statuses come first however long events take.
func (d *Deliverer) events(ctx context.Context) {
	d.pace.next = time.Time{}
	now := time.Now()
	if !d.decided || d.sending || d.quiet.waits(now) {
		return
	}
	d.lost = slices.DeleteFunc(d.lost, func(e *v1.Event) bool { return now.Sub(e.LastTimestamp.Time) > verdict.EventsFor })
	event, again, sent := d.nextEvent(now)
	if event == nil || !d.pace.may(now) {
		return
	}
	limits := ctx
	if again.pause > 0 && !d.mute { // this one was not answered before, it may be
		limits = kube.Patiently(ctx)
	}
	d.sending = true
	d.beside.Go(func() {
		err := d.o.API.CreateEvent(limits, event)
		alone := kube.Unanswered(err) && d.readable(ctx, api.Victim{Namespace: event.Namespace, Name: event.InvolvedObject.Name}) == nil
		d.inLoop(ctx, func(context.Context) {
			if d.sending = false; d.came(event, again, alone, err) {
				sent()
			}
		})
	})
}

// nextEvent is the next one that is due, when it is tried again, and what is to be done when the API has it; nil: there is none. Those that
// were not tried in vain come first, in the order of the records, and of the others the one that is due the longest: none waits for others
// that the API does not take.
func (d *Deliverer) nextEvent(now time.Time) (event *v1.Event, again *retry, sent func()) {
	if len(d.lost) > 0 && !d.losses.waits(now) {
		event, again = d.lost[0], &d.losses
		sent = func() { d.lost = slices.DeleteFunc(d.lost, func(o *v1.Event) bool { return o == event }) }
	}
	for _, e := range d.entries {
		if again != nil && !e.events.until.Before(again.until) {
			continue
		}
		// What is said depends on what became of the pod. And an event names the record: an author who read that before his pod is failed could
		// write it to the pod himself, as if it had been.
		if e.busy || !e.status && e.told.Act == verdict.Wait && d.status || e.events.waits(now) {
			continue
		}
		if next := d.unsent(e); next != nil {
			event, again, sent = next, &e.events, func() { e.sent[next.Name] = true }
		}
	}
	return event, again, sent
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

// came takes the answer to an event. alone: it had none in time, and a read has. !sent: it is sent again. One whose namespace goes is given
// up.
func (d *Deliverer) came(event *v1.Event, again *retry, alone bool, err error) (sent bool) {
	name := event.Namespace + "/" + event.Name
	asked, _ := kube.AskAgain(err)
	means, longest := kube.Means(err), refusedPause
	if means != kube.Away {
		d.takesEvents()
	}
	switch means {
	case kube.None:
		*again = retry{}
		return true
	case kube.NotFound:
		d.o.Log.Info("an event is given up: its namespace goes", "event", name, "error", err)
		return true
	case kube.Refused, kube.Changed, kube.Failing: // this one alone, it may be: others do not wait for it
		d.o.Log.Warn("the API refuses an event: it is sent again", "event", name, "error", err)
	default: // this one alone, too, or all of them
		switch {
		case alone && d.mute: // it was on its way while nobody was answered
			longest = lastPause
			d.takesEvents()
		case alone: // which has taken its time
			d.o.Log.Warn("the API takes too long for an event: it is sent again", "event", name, "error", err)
		default:
			longest = lastPause
			d.quiet.failed(time.Now(), longest, asked)
			if !d.mute {
				d.mute = true
				d.o.Log.Warn("the API takes no events: they are sent again", "event", name, "error", err)
			}
		}
	}
	again.failed(time.Now(), longest, asked)
	return false
}

// takesEvents takes that the API has answered one. Where no status waits that shows that it is there.
func (d *Deliverer) takesEvents() {
	if d.quiet = (retry{}); d.mute {
		d.mute = false
		d.o.Log.Info("the API takes events again")
	}
	if !slices.ContainsFunc(d.entries, func(e *entry) bool { return !e.status }) {
		d.spoke = true
		d.heard(nil)
	}
}
