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
	pollInterval = time.Second // between two queries for the state
	// queryTimeout bounds a query to the agent. A busy agent rejects the query within 2 s.
	queryTimeout = 3 * time.Second
	// outlookInterval is the time between two queries for the ranking while a browser is connected.
	// The agent reads every pod for it.
	outlookInterval = 5 * time.Second
	// recordsInterval is the time between two queries for records without an event about an eviction.
	recordsInterval = 10 * time.Second
	// reconnectDelay is the time between two attempts to follow events.
	reconnectDelay = 500 * time.Millisecond
)

// watch queries the agent and stores the answers on the board.
type watch struct {
	client     *api.Client
	board      *board
	recordsDue chan struct{} // one slot: an event reports an eviction, or the agent answers again

	// Used by pollState only.
	outlookAt   time.Time // last query for the ranking; zero: one is due
	unreachable bool      // the agent did not answer the last query
}

// pollState queries the state once a second and when a browser connects, and the ranking.
func (w *watch) pollState(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		w.poll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.board.arrived:
		}
	}
}

// pollRecords queries records after an event about an eviction, during an eviction, and every
// recordsInterval. It is separate from pollState, because a query for the ranking takes long and
// would delay the news of an eviction.
func (w *watch) pollRecords(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var queriedAt time.Time
	for {
		if now := time.Now(); now.Sub(queriedAt) >= recordsInterval || w.board.evictionInProgress() {
			if records, err := w.client.Records(ctx); err == nil || unsupported(err) {
				queriedAt = now
				w.board.addRecords(records)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.recordsDue:
			queriedAt = time.Time{}
		}
	}
}

// requestRecords makes pollRecords query immediately.
func (w *watch) requestRecords() {
	select {
	case w.recordsDue <- struct{}{}:
	default:
	}
}

// poll queries the state, and the ranking if it is due.
func (w *watch) poll(ctx context.Context) {
	state, err := w.client.State(ctx)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if err != nil {
		w.board.setUnreachable(now, err)
		w.outlookAt, w.unreachable = time.Time{}, true
		return
	}
	w.board.setState(now, state)
	if w.unreachable {
		w.unreachable = false
		w.requestRecords()
	}
	if w.board.hasViewers() && now.Sub(w.outlookAt) >= outlookInterval {
		if outlook, err := w.client.Outlook(ctx); err == nil || unsupported(err) {
			w.outlookAt = now
			w.board.setOutlook(outlook)
		}
	}
}

// unsupported reports whether the agent is too old for a query.
func unsupported(err error) bool {
	var status *api.StatusError
	return errors.As(err, &status) && status.Status == http.StatusNotFound
}

// followEvents stores events on the board. After a lost connection or a restart of the agent it
// reconnects and continues after the last event.
func (w *watch) followEvents(ctx context.Context) {
	var last uint64
	for {
		// the error is ignored: poll reports an unreachable agent
		_ = w.client.Events(ctx, api.EventOptions{Since: last, Follow: true}, func(e api.Event) error {
			last = max(last, e.Seq)
			w.board.addEvent(e)
			if e.Kind == api.EventEviction {
				w.requestRecords()
			}
			return nil
		})
		if !retry.Sleep(ctx, reconnectDelay) {
			return
		}
	}
}
