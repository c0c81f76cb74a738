// Package nodepods keeps the agent's pod objects up to date. It watches the pods of this node in
// the Kubernetes API and sends the agent the fields that it uses. It also keeps a copy for the
// packages that write the status of pods.
//
// The agent keeps its pods when the bridge ends, restarts, or cannot reach the API server: the
// bridge deletes a pod from the agent only after the API server reported it as deleted.
//
//	nodepods.go  Pods: starts the watch and the sender
//	source.go    logs changes of the watch's state
//	store.go     the copy
//	reduce.go    reduces pods to the fields that the bridge and the agent use
//	send.go      sends pods to the agent
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

// Agent is the subset of the agent's socket that receives pods.
type Agent interface {
	ReplacePods(ctx context.Context, pods any) (api.PutAnswer, error)
	PutPods(ctx context.Context, pods any) (api.PutAnswer, error)
	DeletePod(ctx context.Context, uid string) error
}

// Options configures New.
type Options struct {
	Source cache.ListerWatcher // the node's pods in the API
	Agent  Agent
	// Changed is called from the watch's goroutine after each change of the copy. It must not
	// block, and may be nil.
	Changed func()
	Log     *slog.Logger
}

// Pods is the copy of this node's pods. It must be made by New.
type Pods struct {
	o      Options
	store  *store
	resync chan struct{} // one slot: send all pods
}

// New returns an empty Pods that is not running.
func New(o Options) *Pods {
	return &Pods{o: o, store: newStore(o.Changed), resync: make(chan struct{}, 1)}
}

// Run watches pods and sends them to the agent until ctx ends.
func (p *Pods) Run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { p.watch(ctx) })
	t := sender{agent: p.o.Agent, store: p.store, log: p.o.Log, resync: p.resync}
	t.run(ctx)
}

// steadyAfter is the duration of a watch after which its end does not count as a failure.
const steadyAfter = 2 * time.Minute

// watch fills the copy until ctx ends.
func (p *Pods) watch(ctx context.Context) {
	from := &loggedSource{ListerWatcherWithContext: cache.ToListerWatcherWithContext(p.o.Source),
		source: p.o.Source, log: p.o.Log}
	silent := logr.Discard() // loggedSource logs instead of the reflector
	quiet := klog.NewContext(ctx, silent)
	kubefeed.Run(quiet, kubefeed.Options{
		From: from, Kind: &v1.Pod{}, Into: p.store,
		Reflector: cache.ReflectorOptions{
			Name: "pods of this node", Clock: contextClock{ctx: ctx}, Logger: &silent,
			// Jitter extends a delay to up to twice the cap: thousands of restarted bridges spread
			// out within a minute.
			Backoff: &wait.Backoff{Duration: minBackoff, Cap: maxBackoff / 2, Steps: 10, Factor: 2,
				Jitter: 1},
		},
		First: minBackoff, Last: maxBackoff, Steady: steadyAfter,
		PauseAfter: func(ctx context.Context, err error, pause time.Duration) time.Duration {
			from.watchEnded(ctx, err)
			retryAfter, _ := kube.RetryAfter(err)
			return max(retry.Jitter(pause), retryAfter)
		},
	})
}

// Resync makes the sender send all pods again, because the agent may have lost them.
func (p *Pods) Resync() {
	select {
	case p.resync <- struct{}{}:
	default:
	}
}
