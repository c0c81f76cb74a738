package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"jettison/cluster/deschedule"
	"jettison/internal/cluster/descheduler/planner"
)

// source caches the objects of the cluster in informers.
type source struct {
	log     *slog.Logger
	factory informers.SharedInformerFactory
	kinds   map[string]cache.SharedIndexInformer // by resource

	mu sync.Mutex
	// ends sync early on a missing permission; nil: sync is not running
	cancelSync context.CancelCauseFunc
	lastErrors map[string]error     // last error of a resource
	loggedAt   map[string]time.Time // time of the last log line about a resource
}

// logInterval limits log lines about a resource that cannot be read: informers retry often.
const logInterval = time.Minute

// newSource returns a source that is not started.
func newSource(client kubernetes.Interface, log *slog.Logger) *source {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	s := &source{log: log, factory: f, lastErrors: map[string]error{}, loggedAt: map[string]time.Time{},
		kinds: map[string]cache.SharedIndexInformer{
			"nodes": f.Core().V1().Nodes().Informer(), "pods": f.Core().V1().Pods().Informer(),
			"namespaces":             f.Core().V1().Namespaces().Informer(),
			"persistentvolumeclaims": f.Core().V1().PersistentVolumeClaims().Informer(),
			"persistentvolumes":      f.Core().V1().PersistentVolumes().Informer(),
			"priorityclasses":        f.Scheduling().V1().PriorityClasses().Informer(),
			"poddisruptionbudgets":   f.Policy().V1().PodDisruptionBudgets().Informer(),
		}}
	for name, informer := range s.kinds {
		// fails only on a running informer
		_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { s.onError(name, err) })
	}
	return s
}

// onError records an error of a resource. A missing permission ends sync. An ended or expired
// watch is no error: the informer lists again.
func (s *source) onError(name string, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErrors[name] = err
	if now := time.Now(); s.cancelSync == nil && now.Sub(s.loggedAt[name]) >= logInterval {
		s.loggedAt[name] = now
		//log: A resource of the cluster cannot be listed or watched. Plans use the objects that were read
		//  last; the program retries.
		//do: Check that the API server is reachable and that the service account may list and watch
		//  the resource.
		s.log.Warn("resource watch failed, using cached objects",
			"resource", name, "error", err)
	}
	if s.cancelSync != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		s.cancelSync(fmt.Errorf("list %s: %w", name, err))
	}
}

// sync starts the informers and waits until all objects were listed once.
func (s *source) sync(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	waiting, cancelSync := context.WithCancelCause(limited)
	defer cancelSync(nil)
	s.mu.Lock()
	s.cancelSync = cancelSync
	s.mu.Unlock()
	s.factory.Start(ctx.Done())
	var synced []cache.InformerSynced
	for _, informer := range s.kinds {
		synced = append(synced, informer.HasSynced)
	}
	ok := cache.WaitForCacheSync(waiting.Done(), synced...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelSync = nil
	if ok {
		return nil
	}
	if limited.Err() == nil {
		return context.Cause(waiting)
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		if !s.kinds[name].HasSynced() {
			missing = append(missing, fmt.Sprintf("%s (%v)", name, s.lastErrors[name]))
		}
	}
	return fmt.Errorf("list objects of the cluster: timeout after %v: %s", syncTimeout, strings.Join(missing, ", "))
}

// close stops the informers and waits for them.
func (s *source) close(cancel context.CancelFunc) {
	cancel()
	s.factory.Shutdown()
}

// snapshot returns the cached objects. Objects are shared, lists are copies.
func (s *source) snapshot() *deschedule.Snapshot {
	out := &deschedule.Snapshot{
		Budgets:         list[policyv1.PodDisruptionBudget](s, "poddisruptionbudgets"),
		PriorityClasses: list[schedulingv1.PriorityClass](s, "priorityclasses"),
	}
	out.Nodes, out.Pods, out.Namespaces = list[v1.Node](s, "nodes"), list[v1.Pod](s, "pods"),
		list[v1.Namespace](s, "namespaces")
	out.Claims, out.Volumes = list[v1.PersistentVolumeClaim](s, "persistentvolumeclaims"),
		list[v1.PersistentVolume](s, "persistentvolumes")
	out.Evicted, out.Rejected = planner.PastEvictions(out.Pods), incomplete(out.Pods)
	return out
}

func list[T any](s *source, name string) (out []*T) {
	for _, item := range s.kinds[name].GetStore().List() {
		if object, ok := item.(*T); ok {
			out = append(out, object)
		}
	}
	return out
}
