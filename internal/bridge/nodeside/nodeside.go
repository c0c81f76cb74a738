// Package nodeside tells a cluster's API how the agent finds the node: conditions of the node, its
// load on a Lease, and events of what no record of an eviction has.
//
//	nodeside.go  Side: the loop
//	write.go     what is written, and when
package nodeside

import (
	"context"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/verdict"
)

// Agent is where the state is asked for, and what happens meanwhile.
type Agent interface {
	State(ctx context.Context) (*api.State, error)
	Events(ctx context.Context, o api.EventOptions, each func(api.Event) error) error
	AgentMinor() int
}

// API is what of the cluster's is written and read.
type API interface {
	Node(ctx context.Context, name string) (*v1.Node, error)
	PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
	PatchLease(ctx context.Context, namespace, name string, body []byte) error
	CreateLease(ctx context.Context, l *coordinationv1.Lease) error
	CreateEvent(ctx context.Context, e *v1.Event) error
}

// Options of New.
type Options struct {
	Node      string
	Namespace string        // of the Leases; empty: the load is not told
	Period    time.Duration // see verdict.NodeOptions
	Agent     Agent
	API       API
	// Bound tells whether the API server can hold a bridge to its node. Where it cannot there are
	// events alone.
	Bound func(context.Context) (bool, error)
	Log   *slog.Logger
}

// Times of the loop.
const (
	lookEvery = 10 * time.Second // the agent's state is looked at, and whenever a condition changes
	// renewEvery is how long one stream of events is followed: an agent that hangs keeps its own open
	// though another has taken its place.
	renewEvery = 10 * time.Minute
	// The pauses after what failed double from the first to the last.
	firstPause, lastPause = time.Second, time.Minute
)

// Side is the loop.
type Side struct {
	o     Options
	wake  chan struct{} // one slot: a condition has changed
	found chan *v1.Event

	bound *bool    // as it was told; nil: not asked yet
	node  *v1.Node // as the API answered last; nil: not asked yet
	state *api.State
	agent string    // its version, as it was said last
	heard time.Time // when the agent last answered
	load  *api.NodeLoad
	wrote time.Time // when the load was
	sent  map[string]time.Time
	queue []*v1.Event // garbage collection's, not sent yet
	told  []part
}

// New makes a Side.
func New(o Options) *Side {
	s := &Side{o: o, wake: make(chan struct{}, 1), found: make(chan *v1.Event),
		sent: map[string]time.Time{}}
	s.told = s.parts()
	return s
}

// Run tells until its context ends.
func (s *Side) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { s.listen(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.found:
			s.queue = append(s.queue, e)
			s.queue = s.queue[max(0, len(s.queue)-verdict.MaxFindings):]
		case <-s.wake:
		case <-timer.C:
		}
		s.look(ctx)
		s.tell(ctx)
		timer.Reset(retry.Jitter(lookEvery))
	}
}

// listen follows the agent's events beside the loop, to which it hands over what it finds.
func (s *Side) listen(ctx context.Context) {
	found, wake, o := s.found, s.wake, s.o // all that it may use here
	var since uint64
	for pause := time.Duration(0); ctx.Err() == nil; {
		stream, cancel := context.WithTimeout(ctx, renewEvery)
		_ = o.Agent.Events(stream, api.EventOptions{Since: since, Follow: true}, func(e api.Event) error {
			since, pause = e.Seq, 0
			if e.Kind == api.EventCondition {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			event := verdict.Garbage(&e, o.Node)
			if event == nil || time.Since(e.Time) > verdict.EventsFor {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case found <- event:
				return nil
			}
		}) // an agent that is away is told of by whoever looks
		cancel()
		pause = retry.Backoff(pause, firstPause, lastPause)
		retry.Sleep(ctx, retry.Jitter(pause))
	}
}

// look asks the agent for its state.
func (s *Side) look(ctx context.Context) {
	state, err := s.o.Agent.State(ctx)
	switch {
	case err == nil:
		s.state, s.heard = state, time.Now()
		s.greet(state.Version)
	case s.heard.IsZero():
		s.heard = time.Now() // from now on it is waited for
	}
}

// greet says whom the bridge speaks to, when that is another one.
func (s *Side) greet(version string) {
	if s.agent == version {
		return
	}
	s.agent = version
	switch minor := s.o.Agent.AgentMinor(); {
	case minor > api.Minor+1 || minor < api.Minor-1:
		s.o.Log.Warn("the agent is more than one minor version away: upgrade the older one",
			"version", version, "minor", minor)
	default:
		s.o.Log.Info("the agent answers", "version", version, "minor", minor)
	}
}
