package deliver

import (
	"context"
	"log/slog"
	"time"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/verdict"
)

// Records is the subset of the agent's socket that sends records.
type Records interface {
	FollowRecords(ctx context.Context, o api.RecordsOptions, each func(*api.RecordsLine) error) error
}

// follower follows the agent's records in a separate goroutine.
type follower struct {
	records Records
	out     chan<- *api.RecordsLine
	resync  func() // resends the pods: an unreachable agent may have lost them
	log     *slog.Logger

	open     map[string]bool // IDs of records that the agent will send again
	newest   string          // the highest ID
	reported bool            // "agent sends no records" is logged
}

// streamTimeout limits one stream: an agent that hangs keeps its stream open although another agent
// has replaced it.
const streamTimeout = 10 * time.Minute

// run follows the records until ctx ends.
func (f *follower) run(ctx context.Context) {
	for delay := time.Duration(0); ctx.Err() == nil; {
		received, began := false, time.Now()
		stream, cancel := context.WithTimeout(ctx, streamTimeout)
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
		// otherwise an agent that closes each stream immediately gets requests without pause
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
			//log: The stream of eviction records from the agent failed. The bridge reconnects with
			//  backoff. The agent keeps its records meanwhile.
			//do: Check that the agent is running and that the bridge may open its socket.
			f.log.Warn("agent unreachable for records, retrying", "error", err)
		}
		f.resync()
		delay = retry.Backoff(delay, minBackoff, maxBackoff)
		if !retry.Sleep(ctx, retry.Jitter(delay)) {
			return
		}
	}
}

// track notes whether the agent will send r again; nil: the line has no record.
func (f *follower) track(r *api.Record) {
	if f.reported {
		f.reported = false
		//log: The agent sends eviction records to the bridge again.
		f.log.Info("agent sends records again")
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

// resumeAfter returns the ID to resume after: all records up to it are final. It returns "" if no
// record is final, or if the clock was set back, so that newer records have lower IDs. Receiving a
// record twice changes nothing.
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
	return prefixBefore(first)
}

// prefixBefore returns a prefix of id, which sorts before id and after most lower IDs. The agent
// accepts it as an ID.
func prefixBefore(id string) string { return id[:max(0, len(id)-1)] }
