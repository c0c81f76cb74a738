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
	pollInterval = time.Second // between two queries for the state, and for the ranking
	// queryTimeout bounds a query to the agent. A busy agent rejects the query within 4 s.
	queryTimeout = 5 * time.Second
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

	unreachable bool // the agent did not answer the last query; used by pollState only
}

// pollState queries the state once a second and when a browser connects.
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

// pollOutlook queries the ranking once a second while a browser shows the page, less often if the
// page may be forgotten, and immediately for a new browser. It is separate from pollState and
// pollRecords, because the agent reads every pod for it, which may take seconds.
func (w *watch) pollOutlook(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var queriedAt time.Time
	for {
		now := time.Now()
		every := w.board.outlookInterval(now)
		if every == pollInterval || every > 0 && now.Sub(queriedAt) >= every {
			queriedAt = now
			outlook, err := w.client.Outlook(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil, unsupported(err):
				w.board.setOutlook(outlook)
			default:
				w.board.setOutlookError(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.board.attended:
		}
	}
}

// pollRecords queries records after an event about an eviction, during an eviction, and every
// recordsInterval.
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

// poll queries the state.
func (w *watch) poll(ctx context.Context) {
	state, err := w.client.State(ctx)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if err != nil {
		w.board.setUnreachable(now, err)
		w.unreachable = true
		return
	}
	w.board.setState(now, state)
	if w.unreachable {
		w.unreachable = false
		w.requestRecords()
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
