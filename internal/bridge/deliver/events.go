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

// Rate of events: a burst, and then one each eventEvery.
const (
	eventBurst = 25
	eventEvery = time.Second
)

// pacer limits the rate of events.
type pacer struct {
	left int       // events that may be sent now
	at   time.Time // when left was counted
	next time.Time // when the next one may be sent; zero: none waits
}

// take takes one event of the rate. !ok: none is left, and next says when there is one.
func (p *pacer) take(now time.Time) (ok bool) {
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

// eventSender is the state of sending: one event at a time, beside the loop. Its backoff holds for
// all events, while the server takes none.
type eventSender struct {
	backoff
	pace     pacer
	inFlight bool // an event is
	reported bool // that the server takes none is logged
}

// gaps has the events of lost records.
type gaps struct {
	backoff
	events []*v1.Event // not sent yet
	newest string      // the name of the newest one, sent or not
}

// takeGap takes that records are missing. An agent reports that to each client that asks: also to a
// follower whose stream it has closed, and of records that were dropped from a full file.
func (d *Deliverer) takeGap(g *api.RecordsGap) {
	event := verdict.Lost(time.Now(), d.o.Node, g)
	switch {
	case event == nil:
		d.o.Log.Debug("the agent has no older records of evictions", "record", g.Until,
			"reason", g.Reason)
	case event.Name != d.gaps.newest:
		d.o.Log.Error("records of evictions are lost: nothing can be said of them",
			"record", g.Until, "reason", g.Reason)
		d.gaps.events, d.gaps.newest = append(d.gaps.events, event), event.Name
	}
}

// sent removes the event of a gap.
func (g *gaps) sent(event *v1.Event) {
	g.events = slices.DeleteFunc(g.events, func(o *v1.Event) bool { return o == event })
}

// sendEvent sends the next event that is due, if none is in flight. The loop does not wait for it:
// statuses come first.
func (d *Deliverer) sendEvent(ctx context.Context) {
	s, now := &d.events, time.Now()
	s.pace.next = time.Time{}
	if !d.modeKnown || s.inFlight || s.waiting(now) {
		return
	}
	d.gaps.events = slices.DeleteFunc(d.gaps.events, func(e *v1.Event) bool {
		return now.Sub(e.LastTimestamp.Time) > verdict.EventsFor
	})
	event, wait, sent := d.nextEvent(now)
	if event == nil || !s.pace.take(now) {
		return
	}
	request := ctx
	if wait.delay > 0 && !s.reported { // a slow webhook may hold up this one
		request = kube.Patiently(ctx)
	}
	s.inFlight = true
	d.background.Go(func() {
		err := d.o.API.CreateEvent(request, event)
		pod := api.Victim{Namespace: event.Namespace, Name: event.InvolvedObject.Name}
		readable := kube.Unanswered(err) && d.read(ctx, pod) == nil
		d.inLoop(ctx, func(context.Context) {
			if s.inFlight = false; d.processEvent(event, wait, readable, err) {
				sent()
			}
		})
	})
}

// nextEvent returns the next event that is due, its backoff, and what to call when the server has
// it; nil: none. Events that were not tried come first, in the order of the records, and then the
// one that is due longest: no event waits for others that the server does not take.
func (d *Deliverer) nextEvent(now time.Time) (event *v1.Event, wait *backoff, sent func()) {
	if len(d.gaps.events) > 0 && !d.gaps.waiting(now) {
		event, wait = d.gaps.events[0], &d.gaps.backoff
		sent = func() { d.gaps.sent(event) }
	}
	for _, e := range d.queue.entries {
		if wait != nil && !e.events.retryAt.Before(wait.retryAt) {
			continue
		}
		// Events depend on what becomes of the pod. And they name the record: an author who read
		// that before the pod is failed could write it to the pod himself, as if it had been.
		if d.queue.writing(e) || !e.settled && e.verdict.Act == verdict.Wait && d.writeStatus ||
			e.events.waiting(now) {
			continue
		}
		if next := d.unsent(e); next != nil {
			event, wait, sent = next, &e.events.backoff, func() { e.events.sent[next.Name] = true }
		}
	}
	return event, wait, sent
}

// unsent returns the next event of an entry that the server does not have; nil: none.
func (d *Deliverer) unsent(e *entry) *v1.Event {
	for _, event := range verdict.Events(time.Now(), e.record, e.verdict, d.o.Node, !d.writeStatus) {
		if !e.events.sent[event.Name] {
			return event
		}
	}
	return nil
}

// processEvent takes the response to an event. readable: it had none in time, and a read was
// served. !done: it is sent again. An event whose namespace is deleted is dropped.
func (d *Deliverer) processEvent(event *v1.Event, wait *backoff, readable bool,
	err error) (done bool) {
	s, name := &d.events, event.Namespace+"/"+event.Name
	retryAfter, _ := kube.AskAgain(err)
	means, longest := kube.Means(err), maxRefusedBackoff
	if means != kube.Away {
		d.takesEvents()
	}
	switch means {
	case kube.None:
		*wait = backoff{}
		return true
	case kube.NotFound:
		d.o.Log.Info("an event is given up: its namespace goes", "event", name, "error", err)
		return true
	case kube.Refused, kube.Changed, kube.Failing: // perhaps this one alone, so others do not wait
		d.o.Log.Warn("the API refuses an event: it is sent again", "event", name, "error", err)
	default: // this one alone, or all
		switch {
		case readable && s.reported: // it was in flight while the server was unreachable
			longest = maxBackoff
			d.takesEvents()
		case readable:
			d.o.Log.Warn("the API takes too long for an event: it is sent again", "event", name,
				"error", err)
		default:
			longest = maxBackoff
			s.fail(time.Now(), longest, retryAfter)
			if !s.reported {
				s.reported = true
				d.o.Log.Warn("the API takes no events: they are sent again", "event", name, "error", err)
			}
		}
	}
	wait.fail(time.Now(), longest, retryAfter)
	return false
}

// takesEvents resets the backoff of all events after a response. If no status is due, it also
// closes the breaker.
func (d *Deliverer) takesEvents() {
	s := &d.events
	if s.backoff = (backoff{}); s.reported {
		s.reported = false
		d.o.Log.Info("the API takes events again")
	}
	if d.queue.settled() {
		d.breaker.answered = true
		d.record(nil)
	}
}
