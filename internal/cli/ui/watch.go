package ui

import (
	"context"
	"errors"
	"net/http"
	"time"

	"jettison/api"
	"jettison/internal/base/retry"
)

const (
	every = time.Second // between two questions for the State
	// askLimit is for an answer of the agent's. It says within 2 s that it is too busy.
	askLimit = 3 * time.Second
	// outlookEvery is how often the agent is asked who would go, while somebody looks: it looks at
	// every pod for that.
	outlookEvery = 5 * time.Second
	// recordsEvery is how often it is asked for its records though no event tells of an eviction.
	recordsEvery = 10 * time.Second
	// again is the time between two attempts to follow events.
	again = 500 * time.Millisecond
)

// watch asks the agent.
type watch struct {
	client *api.Client
	board  *board
	poked  chan struct{} // one slot: an event tells of an eviction, or the agent is back

	// Of run.
	outlooked time.Time // when it was last asked for that; zero: that is due
	isAway    bool      // it did not answer the last time
}

// run asks for the State once a second and when somebody begins to look, and for the outlook.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.board.arrived:
		}
	}
}

// keep asks for records when an event tells of an eviction, while one is under way, and now and
// then. It is not run's: an agent that looks at each of its pods for the outlook would hold up what
// shows that one is gone.
func (w *watch) keep(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var recorded time.Time
	for {
		if now := time.Now(); now.Sub(recorded) >= recordsEvery || w.board.running() {
			if records, err := w.client.Records(ctx); err == nil || unknown(err) {
				recorded = now
				w.board.recorded(records)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.poked:
			recorded = time.Time{}
		}
	}
}

// poke has records asked for at once.
func (w *watch) poke() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

// ask asks for what is due.
func (w *watch) ask(ctx context.Context) {
	state, err := w.client.State(ctx)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if err != nil {
		w.board.away(now, err)
		w.outlooked, w.isAway = time.Time{}, true
		return
	}
	w.board.answered(now, state)
	if w.isAway {
		w.isAway = false
		w.poke()
	}
	if w.board.seen() && now.Sub(w.outlooked) >= outlookEvery {
		if outlook, err := w.client.Outlook(ctx); err == nil || unknown(err) {
			w.outlooked = now
			w.board.outlook(outlook)
		}
	}
}

// unknown: the agent is older than what it was asked for.
func unknown(err error) bool {
	var status *api.StatusError
	return errors.As(err, &status) && status.Status == http.StatusNotFound
}

// follow takes events as they come, from the last one on where the agent hangs up or starts anew.
func (w *watch) follow(ctx context.Context) {
	var last uint64
	for {
		// run says that it is away
		_ = w.client.Events(ctx, api.EventOptions{Since: last, Follow: true}, func(e api.Event) error {
			last = max(last, e.Seq)
			w.board.happened(e)
			if e.Kind == api.EventEviction {
				w.poke()
			}
			return nil
		})
		if !retry.Sleep(ctx, again) {
			return
		}
	}
}
