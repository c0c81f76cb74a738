package deliver

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// Records is where the agent tells them.
type Records interface {
	FollowRecords(ctx context.Context, o api.RecordsOptions, each func(*api.RecordsLine) error) error
}

// follower asks for records beside the loop.
type follower struct {
	records Records
	out     chan<- *api.RecordsLine
	again   func() // the agent was away: it may have forgotten what it was told
	log     *slog.Logger

	running map[string]bool // those of which the agent has more to say
	newest  string
	said    bool
}

// renewEvery is how long one stream is followed: an agent that hangs for good keeps its own open though another has taken its place.
const renewEvery = 10 * time.Minute

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	for pause := time.Duration(0); ctx.Err() == nil; {
		heard, began := false, time.Now()
		stream, cancel := context.WithTimeout(ctx, renewEvery)
		err := f.records.FollowRecords(stream, api.RecordsOptions{After: f.from(), Follow: true}, func(l *api.RecordsLine) error {
			heard = true
			f.see(l.Record)
			return f.hand(ctx, l)
		})
		renewed := stream.Err() != nil && heard
		cancel()
		if time.Since(began) > lastPause { // an agent that tells and hangs up at once is asked less and less often, too
			pause = 0
		}
		switch {
		case ctx.Err() != nil:
			return
		case renewed:
			continue
		case err != nil && !f.said:
			f.said = true
			f.log.Warn("the agent tells no records: what it has evicted is told when it does", "error", err)
		}
		f.again()
		pause = min(max(2*pause, firstPause), lastPause)
		if !sleep(ctx, jittered(pause)) {
			return
		}
	}
}

func (f *follower) hand(ctx context.Context, l *api.RecordsLine) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case f.out <- l:
		return nil
	}
}

func (f *follower) see(r *api.Record) {
	if f.said {
		f.said = false
		f.log.Info("the agent tells its records again")
	}
	if r == nil {
		return
	}
	f.newest = max(f.newest, r.ID)
	if !verdict.Final(time.Now(), r) {
		f.running[r.ID] = true
		return
	}
	delete(f.running, r.ID)
}

// from is the ID after which there may be news: everything up to it is final. Empty: nothing is, or the clock was set back since, and what
// has begun since has lower IDs. What is told once more makes nothing twice.
func (f *follower) from() string {
	if at, ok := verdict.BeganAt(f.newest); ok && at.After(time.Now()) {
		return ""
	}
	if len(f.running) == 0 {
		return f.newest
	}
	first := f.newest
	for id := range f.running {
		first = min(first, id)
	}
	return before(first)
}

// before sorts before an ID and after most that do: it is the beginning of it, which the agent takes for one.
func before(id string) string { return id[:max(0, len(id)-1)] }

// jittered is a pause between its half and itself.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// sleep waits. !ok: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
