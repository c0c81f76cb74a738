package deliver

import (
	"context"
	"log/slog"
	"time"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/verdict"
)

// Records is the agent, as far as it sends records.
type Records interface {
	FollowRecords(ctx context.Context, o api.RecordsOptions, each func(*api.RecordsLine) error) error
}

// follower follows the agent's records beside the loop.
type follower struct {
	records Records
	out     chan<- *api.RecordsLine
	resync  func() // the agent was unreachable, and may have lost the pods that it was sent
	log     *slog.Logger

	open     map[string]bool // IDs of records of which the agent will send more
	newest   string          // the highest ID
	reported bool            // that the agent sends nothing is logged
}

// renewEvery is how long one stream is followed: an agent that hangs keeps its stream open though
// another has replaced it.
const renewEvery = 10 * time.Minute

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	for delay := time.Duration(0); ctx.Err() == nil; {
		received, began := false, time.Now()
		stream, cancel := context.WithTimeout(ctx, renewEvery)
		from := api.RecordsOptions{After: f.resumeAfter(), Follow: true}
		err := f.records.FollowRecords(stream, from, func(l *api.RecordsLine) error {
			received = true
			f.track(l.Record)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case f.out <- l:
				return nil
			}
		})
		renewed := stream.Err() != nil && received
		cancel()
		// else an agent that closes streams at once is asked all the time
		if time.Since(began) > maxBackoff {
			delay = 0
		}
		switch {
		case ctx.Err() != nil:
			return
		case renewed:
			continue
		case err != nil && !f.reported:
			f.reported = true
			f.log.Warn("the agent tells no records: what it has evicted is told when it does", "error", err)
		}
		f.resync()
		delay = retry.Backoff(delay, minBackoff, maxBackoff)
		if !retry.Sleep(ctx, retry.Jitter(delay)) {
			return
		}
	}
}

// track notes whether the agent will send more of a record; nil: the line has none.
func (f *follower) track(r *api.Record) {
	if f.reported {
		f.reported = false
		f.log.Info("the agent tells its records again")
	}
	if r == nil {
		return
	}
	f.newest = max(f.newest, r.ID)
	if !verdict.Final(time.Now(), r) {
		f.open[r.ID] = true
		return
	}
	delete(f.open, r.ID)
}

// resumeAfter returns the ID after which there may be news: everything up to it is final. Empty:
// nothing is, or the clock was set back, and newer records have lower IDs. A record that is sent
// again changes nothing.
func (f *follower) resumeAfter() string {
	if at, ok := verdict.BeganAt(f.newest); ok && at.After(time.Now()) {
		return ""
	}
	if len(f.open) == 0 {
		return f.newest
	}
	first := f.newest
	for id := range f.open {
		first = min(first, id)
	}
	return before(first)
}

// before returns a prefix of an ID, which sorts before it and after most lower ones. The agent
// accepts it as an ID.
func before(id string) string { return id[:max(0, len(id)-1)] }
