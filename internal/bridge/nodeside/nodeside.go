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
	CanRestrict func(context.Context) (bool, error)
	Log         *slog.Logger
}

// Times of the loop.
const (
	readInterval = 10 * time.Second // the agent's state is looked at, and whenever a condition changes
	// renewEvery is how long one stream of events is followed: an agent that hangs keeps its own open
	// though another has taken its place.
	streamTimeout = 10 * time.Minute
	// The pauses after what failed double from the first to the last.
	minBackoff, maxBackoff = time.Second, time.Minute
)

// Side is the loop.
type Reporter struct {
	o     Options
	wake  chan struct{} // one slot: a condition has changed
	found chan *v1.Event

	restricted    *bool    // as it was told; nil: not asked yet
	node          *v1.Node // as the API answered last; nil: not asked yet
	state         *api.State
	agentVersion  string    // its version, as it was said last
	lastContact   time.Time // when the agent last answered
	lastLoad      *api.NodeLoad
	loadWrittenAt time.Time // when the load was
	sent          map[string]time.Time
	pendingEvents []*v1.Event // garbage collection's, not sent yet
	parts         []part
}

// New makes a Side.
func New(o Options) *Reporter {
	s := &Reporter{o: o, wake: make(chan struct{}, 1), found: make(chan *v1.Event),
		sent: map[string]time.Time{}}
	s.parts = s.newParts()
	return s
}

// Run tells until its context ends.
func (s *Reporter) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { s.followEvents(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.found:
			s.pendingEvents = append(s.pendingEvents, e)
			s.pendingEvents = s.pendingEvents[max(0, len(s.pendingEvents)-verdict.MaxFindings):]
		case <-s.wake:
		case <-timer.C:
		}
		s.readState(ctx)
		s.writeDue(ctx)
		timer.Reset(retry.Jitter(readInterval))
	}
}

// listen follows the agent's events beside the loop, to which it hands over what it finds.
func (s *Reporter) followEvents(ctx context.Context) {
	found, wake, o := s.found, s.wake, s.o // all that it may use here
	var since uint64
	for pause := time.Duration(0); ctx.Err() == nil; {
		stream, cancel := context.WithTimeout(ctx, streamTimeout)
		_ = o.Agent.Events(stream, api.EventOptions{Since: since, Follow: true}, func(e api.Event) error {
			since, pause = e.Seq, 0
			if e.Kind == api.EventCondition {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			event := verdict.GarbageCollectionFailed(&e, o.Node)
			if event == nil || time.Since(e.Time) > verdict.EventMaxAge {
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
		pause = retry.Backoff(pause, minBackoff, maxBackoff)
		retry.Sleep(ctx, retry.Jitter(pause))
	}
}

// look asks the agent for its state.
func (s *Reporter) readState(ctx context.Context) {
	state, err := s.o.Agent.State(ctx)
	switch {
	case err == nil:
		s.state, s.lastContact = state, time.Now()
		s.logVersion(state.Version)
	case s.lastContact.IsZero():
		s.lastContact = time.Now() // from now on it is waited for
	}
}

// greet says whom the bridge speaks to, when that is another one.
func (s *Reporter) logVersion(version string) {
	if s.agentVersion == version {
		return
	}
	s.agentVersion = version
	switch minor := s.o.Agent.AgentMinor(); {
	case minor > api.Minor+1 || minor < api.Minor-1:
		s.o.Log.Warn("the agent is more than one minor version away: upgrade the older one",
			"version", version, "minor", minor)
	default:
		s.o.Log.Info("the agent answers", "version", version, "minor", minor)
	}
}
