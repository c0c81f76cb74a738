// Package nodepods keeps the agent's pod objects exact: it watches this node's pods at the
// cluster's API, and no others, and hands to the agent what that uses of them. It keeps a copy for
// who writes their status.
//
// What the agent was told stays when the bridge ends, restarts, or loses the API: a pod is taken
// away only where the API has said that it is gone.
//
//	nodepods.go  Pods: the watch and the telling, and when they run
//	noted.go     what is said of the watch
//	store.go     the copy
//	keep.go      what of a pod is kept, and what of that the agent is told
//	tell.go      the telling
package nodepods

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
	"jettison/internal/kube/kubefeed"
)

// Agent is what the agent is told by.
type Agent interface {
	ReplacePods(ctx context.Context, pods any) (api.PutAnswer, error)
	PutPods(ctx context.Context, pods any) (api.PutAnswer, error)
	DeletePod(ctx context.Context, uid string) error
}

// Options of New.
type Options struct {
	Source cache.ListerWatcher // the node's pods at the API
	Agent  Agent
	// the copy is another; called beside whoever watches, and returns at once. nil: nobody asks
	Changed func()
	Log     *slog.Logger
}

// Pods are those of this node.
type Pods struct {
	o      Options
	store  *store
	resync chan struct{} // one slot: all is to be told anew
}

// New makes Pods that knows none yet.
func New(o Options) *Pods {
	return &Pods{o: o, store: newStore(o.Changed), resync: make(chan struct{}, 1)}
}

// Run watches and tells until its context ends.
func (p *Pods) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { p.watch(ctx) })
	t := sender{agent: p.o.Agent, store: p.store, log: p.o.Log, resync: p.resync}
	t.run(ctx)
}

// lasted is how long a watch has to have held for its end to be no failure.
const steadyAfter = 2 * time.Minute

// watch fills the copy.
func (p *Pods) watch(ctx context.Context) {
	from := &loggedSource{ListerWatcherWithContext: cache.ToListerWatcherWithContext(p.o.Source),
		source: p.o.Source, log: p.o.Log}
	silent := logr.Discard() // what it says of a watch is said by noted
	quiet := klog.NewContext(ctx, silent)
	kubefeed.Run(quiet, kubefeed.Options{
		From: from, Kind: &v1.Pod{}, Into: p.store,
		Reflector: cache.ReflectorOptions{
			Name: "pods of this node", Clock: contextClock{ctx: ctx}, Logger: &silent,
			// Up to twice the cap: who restarts a thousand of them at once has them come one by one, and
			// none is late by a minute.
			Backoff: &wait.Backoff{Duration: minBackoff, Cap: maxBackoff / 2, Steps: 10, Factor: 2,
				Jitter: 1},
		},
		First: minBackoff, Last: maxBackoff, Steady: steadyAfter,
		Ended: func(ctx context.Context, err error, pause time.Duration) time.Duration {
			from.watchEnded(ctx, err)
			asked, _ := kube.RetryAfter(err)
			return max(retry.Jitter(pause), asked)
		},
	})
}

// Again has all pods told once more: the agent may have forgotten them.
func (p *Pods) Resync() {
	select {
	case p.resync <- struct{}{}:
	default:
	}
}
