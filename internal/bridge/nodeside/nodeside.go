// Package nodeside reports the agent's view of the node to the Kubernetes API: node conditions, the
// node's load on a Lease, and events of findings that have no eviction record.
//
//	nodeside.go  Reporter: the loop
//	write.go     writes the parts that are due
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

// Agent is the subset of the agent's socket that serves its state and events.
type Agent interface {
	State(ctx context.Context) (*api.State, error)
	Events(ctx context.Context, o api.EventOptions, each func(api.Event) error) error
	AgentMinor() int
}

// API is the subset of the Kubernetes API that a Reporter uses.
type API interface {
	Node(ctx context.Context, name string) (*v1.Node, error)
	PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
	PatchLease(ctx context.Context, namespace, name string, body []byte) error
	CreateLease(ctx context.Context, l *coordinationv1.Lease) error
	CreateEvent(ctx context.Context, e *v1.Event) error
}

// Options configures New.
type Options struct {
	Node      string
	Namespace string        // namespace of the Leases; empty: no load is written
	Period    time.Duration // see verdict.NodeOptions
	Agent     Agent
	API       API
	// CanRestrict reports whether the API server can restrict a bridge to its node. If not, only
	// events are sent.
	CanRestrict func(context.Context) (bool, error)
	Log         *slog.Logger
}

// Timing of the loop.
const (
	readInterval = 10 * time.Second // time between reads of the agent's state
	// streamTimeout limits one stream of events: an agent that hangs keeps its stream open although
	// another agent has replaced it.
	streamTimeout = 10 * time.Minute
	// The backoff doubles from minBackoff to maxBackoff.
	minBackoff, maxBackoff = time.Second, time.Minute
)

// Reporter is the loop that reports the node.
type Reporter struct {
	o     Options
	wake  chan struct{} // one slot: a condition has changed
	found chan *v1.Event

	restricted    *bool    // result of CanRestrict; nil: unknown
	node          *v1.Node // from the API's last response; nil: none
	state         *api.State
	agentVersion  string    // the last logged version
	lastContact   time.Time // when the agent last responded
	lastLoad      *api.NodeLoad
	loadWrittenAt time.Time
	sent          map[string]time.Time // sent events by namespace/name
	pendingEvents []*v1.Event          // garbage collection events, not sent yet
	parts         []part
}

// New returns a Reporter that is not running.
func New(o Options) *Reporter {
	s := &Reporter{o: o, wake: make(chan struct{}, 1), found: make(chan *v1.Event),
		sent: map[string]time.Time{}}
	s.parts = s.newParts()
	return s
}

// Run reports the node until ctx ends.
func (s *Reporter) Run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { s.followEvents(ctx) })
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

// followEvents follows the agent's events in a goroutine and passes findings to the loop.
func (s *Reporter) followEvents(ctx context.Context) {
	found, wake, o := s.found, s.wake, s.o // this goroutine must not use other fields
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
		}) // errors are ignored: readState notices an unreachable agent
		cancel()
		pause = retry.Backoff(pause, minBackoff, maxBackoff)
		retry.Sleep(ctx, retry.Jitter(pause))
	}
}

// readState reads the agent's state.
func (s *Reporter) readState(ctx context.Context) {
	state, err := s.o.Agent.State(ctx)
	switch {
	case err == nil:
		s.state, s.lastContact = state, time.Now()
		s.logVersion(state.Version)
	case s.lastContact.IsZero():
		s.lastContact = time.Now() // AgentTimeout starts now
	}
}

// logVersion logs the agent's version when it changes.
func (s *Reporter) logVersion(version string) {
	if s.agentVersion == version {
		return
	}
	s.agentVersion = version
	switch minor := s.o.Agent.AgentMinor(); {
	case minor > api.Minor+1 || minor < api.Minor-1:
		//log: Agent and bridge differ by more than one minor version.
		//do: Upgrade the older one.
		s.o.Log.Warn("agent version skew too large",
			"version", version, "minor", minor)
	default:
		//log: The agent responds, for the first time or with a new version.
		s.o.Log.Info("agent connected", "version", version, "minor", minor)
	}
}
