package deliver

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// Rate limit of events: a burst, then one per eventInterval.
const (
	eventBurst    = 25
	eventInterval = time.Second
)

// pacer limits the rate of events.
type pacer struct {
	tokens    int       // events that may be sent now
	countedAt time.Time // when tokens was updated
	next      time.Time // when the next event may be sent; zero: none is pending
}

// allow takes one token. If none is left, ok is false and next is set to the time of the next
// token.
func (p *pacer) allow(now time.Time) (ok bool) {
	if n := int(now.Sub(p.countedAt) / eventInterval); n > 0 {
		p.tokens, p.countedAt = min(eventBurst, p.tokens+n), p.countedAt.Add(time.Duration(n)*eventInterval)
	}
	if p.tokens == eventBurst {
		p.countedAt = now
	}
	if p.next = (time.Time{}); p.tokens == 0 {
		p.next = p.countedAt.Add(eventInterval)
		return false
	}
	p.tokens--
	return true
}

// eventSender is the state of sending events: one at a time, in the background. Its backoff applies
// to all events while the server accepts none.
type eventSender struct {
	backoff
	pacer    pacer
	inFlight bool // an event is being sent
	reported bool // "API server accepts no events" is logged
	// when the last event of a namespace was rejected; absent: it was sent
	rejectedAt map[string]time.Time
}

// gaps holds the events of record gaps.
type gaps struct {
	backoff
	events []*v1.Event // not sent yet
	newest string      // the name of the newest event, sent or not
}

// addGap queues the event of a record gap, once. The agent reports a gap again on each new stream,
// and it also reports records that it dropped from a full file.
func (d *Deliverer) addGap(g *api.RecordsGap) {
	event := verdict.RecordsLost(time.Now(), d.o.Node, g)
	switch {
	case event == nil:
		//log: The agent dropped records of evictions that are too old for an event. Nothing is
		//  sent.
		d.o.Log.Debug("old eviction records dropped by agent", "record", g.Until,
			"reason", g.Reason)
	case event.Name != d.gaps.newest:
		//log: The agent lost records of recent evictions. The bridge cannot write their pod
		//  statuses and events.
		//do: See reason, and check the log and the disk of the agent. Pods evicted up to this
		//  record may show no reason.
		d.o.Log.Error("eviction records lost",
			"record", g.Until, "reason", g.Reason)
		d.gaps.events, d.gaps.newest = append(d.gaps.events, event), event.Name
	}
}

// removeEvent removes the event of a gap after it was sent.
func (g *gaps) removeEvent(event *v1.Event) {
	g.events = slices.DeleteFunc(g.events, func(o *v1.Event) bool { return o == event })
}

// sendEvent starts to send the next event that is due, if none is in flight. The loop does not wait
// for the response: statuses come first.
func (d *Deliverer) sendEvent(ctx context.Context) {
	s, now := &d.events, time.Now()
	s.pacer.next = time.Time{}
	if !d.modeKnown || s.inFlight || s.waiting(now) {
		return
	}
	d.gaps.events = slices.DeleteFunc(d.gaps.events, func(e *v1.Event) bool {
		return now.Sub(e.LastTimestamp.Time) > verdict.EventMaxAge
	})
	maps.DeleteFunc(s.rejectedAt, func(_ string, at time.Time) bool {
		return now.Sub(at) > verdict.EventMaxAge
	})
	event, wait, sent := d.nextEvent(now)
	if event == nil || !s.pacer.allow(now) {
		return
	}
	request := ctx
	_, rejected := s.rejectedAt[event.Namespace]
	if (wait.delay > 0 || rejected) && !s.reported { // a slow webhook may delay this event
		request = kube.WithWebhookTimeout(ctx)
	}
	s.inFlight = true
	d.background.Go(func() {
		err := d.o.API.CreateEvent(request, event)
		readable := kube.TimedOut(err) && d.read(ctx) == nil
		d.runInLoop(ctx, func(context.Context) {
			if s.inFlight = false; d.processEvent(event, wait, readable, err) {
				sent()
			}
		})
	})
}

// nextEvent returns the next event that is due, its backoff, and the function to call after it was
// sent; nil: no event is due. Namespaces whose last event was rejected come last, the earliest
// rejection first: a webhook of one namespace delays no other. In a namespace untried events come
// first, in record order, then the one that has been due longest.
func (d *Deliverer) nextEvent(now time.Time) (event *v1.Event, wait *backoff, sent func()) {
	offer := func(next *v1.Event, w *backoff, send func()) {
		if w.waiting(now) {
			return
		}
		if event != nil {
			order := d.events.rejectedAt[next.Namespace].Compare(d.events.rejectedAt[event.Namespace])
			if cmp.Or(order, w.retryAt.Compare(wait.retryAt)) >= 0 {
				return
			}
		}
		event, wait, sent = next, w, send
	}
	for _, e := range d.gaps.events {
		offer(e, &d.gaps.backoff, func() { d.gaps.removeEvent(e) })
	}
	for _, e := range d.queue.entries {
		// Events depend on the outcome of the pod. They also contain the record ID: a pod author
		// who reads it before the pod is Failed could write it to the pod and so fake the eviction.
		if d.queue.writing(e) || !e.settled && e.verdict.Act == verdict.Wait && d.writeStatus {
			continue
		}
		for _, next := range d.unsentEvents(e) {
			offer(next, e.events.wait(next), func() { e.events.sent[next.Name] = true })
		}
	}
	return event, wait, sent
}

// unsentEvents returns the events of an entry that were not sent.
func (d *Deliverer) unsentEvents(e *entry) []*v1.Event {
	all := verdict.Events(time.Now(), e.record, e.verdict, d.o.Node, !d.writeStatus)
	return slices.DeleteFunc(all, func(event *v1.Event) bool { return e.events.sent[event.Name] })
}

// processEvent processes the response to an event. readable: the request timed out while a read was
// served. If done is false, the event is retried. An event is dropped if its namespace is being
// deleted.
func (d *Deliverer) processEvent(event *v1.Event, wait *backoff, readable bool,
	err error) (done bool) {
	s, name := &d.events, event.Namespace+"/"+event.Name
	retryAfter, _ := kube.RetryAfter(err)
	failure, maxDelay := kube.Classify(err), maxDeniedBackoff
	if failure != kube.Unreachable {
		d.eventsRecovered()
	}
	switch failure {
	case kube.None:
		*wait = backoff{}
		delete(s.rejectedAt, event.Namespace)
		return true
	case kube.NotFound:
		//log: The API server does not accept the event because the namespace of the pod is being
		//  deleted.
		d.o.Log.Info("event dropped, namespace is being deleted", "event", name, "error", err)
		return true
	case kube.Denied, kube.Conflict, kube.ServerError: // may concern this event only
		//log: The API server answered the event with an error. The bridge retries it with backoff;
		//  other events are sent.
		//do: See error. Check the role of the bridge, admission policies and webhooks for events.
		d.o.Log.Warn("event rejected, retrying", "event", name, "error", err)
	default: // may concern this event only, or all
		switch {
		case readable && s.reported: // the event was in flight during the outage
			maxDelay = maxBackoff
			d.eventsRecovered()
		case readable:
			//log: The API server did not answer the event in time, but it serves reads. The bridge
			//  retries the event with backoff.
			//do: Check admission webhooks for events in this namespace.
			d.o.Log.Warn("event timed out, retrying", "event", name, "error", err)
		default:
			maxDelay = maxBackoff
			s.fail(time.Now(), maxDelay, retryAfter)
			if !s.reported {
				s.reported = true
				//log: Sending events fails, times out, or is answered with 401, 429 or 503. The
				//  bridge retries all events with backoff.
				//do: Check the API server and where it stores events. Pod statuses are written
				//  independently.
				d.o.Log.Warn("API server accepts no events, retrying", "event", name, "error", err)
			}
		}
	}
	s.rejectedAt[event.Namespace] = time.Now()
	wait.fail(time.Now(), maxDelay, retryAfter)
	return false
}

// eventsRecovered resets the backoff of all events after a response. If no status is due, it also
// closes the breaker.
func (d *Deliverer) eventsRecovered() {
	s := &d.events
	if s.backoff = (backoff{}); s.reported {
		s.reported = false
		//log: The API server responds to events of the bridge again.
		d.o.Log.Info("API server accepts events again")
	}
	if d.queue.settled() {
		d.breaker.answered = true
		d.record(nil)
	}
}
