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

// source keeps the cluster's objects.
type source struct {
	log     *slog.Logger
	factory informers.SharedInformerFactory
	kinds   map[string]cache.SharedIndexInformer // by resource

	mu     sync.Mutex
	denied context.CancelCauseFunc // ends the first look where it may not look; nil: it is over
	failed map[string]error        // why a resource could not be read last
	said   map[string]time.Time    // when that was logged last
}

// saidEvery is how often it is logged that a resource cannot be read: it is tried again and again,
// and plans go by what was there last.
const saidEvery = time.Minute

// newSource makes one that reads nothing yet.
func newSource(client kubernetes.Interface, log *slog.Logger) *source {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	s := &source{log: log, factory: f, failed: map[string]error{}, said: map[string]time.Time{},
		kinds: map[string]cache.SharedIndexInformer{
			"nodes": f.Core().V1().Nodes().Informer(), "pods": f.Core().V1().Pods().Informer(),
			"namespaces":             f.Core().V1().Namespaces().Informer(),
			"persistentvolumeclaims": f.Core().V1().PersistentVolumeClaims().Informer(),
			"persistentvolumes":      f.Core().V1().PersistentVolumes().Informer(),
			"priorityclasses":        f.Scheduling().V1().PriorityClasses().Informer(),
			"poddisruptionbudgets":   f.Policy().V1().PodDisruptionBudgets().Informer(),
		}}
	for name, informer := range s.kinds {
		// an error only once it runs
		_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { s.onError(name, err) })
	}
	return s
}

// onError notes what keeps a resource from being read. Where it is a right that lacks, the first
// look need not wait. That a watch ends, or is too old to go on, is no error: it begins anew.
func (s *source) onError(name string, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[name] = err
	if now := time.Now(); s.denied == nil && now.Sub(s.said[name]) >= saidEvery {
		s.said[name] = now
		s.log.Warn("a resource of the cluster cannot be read: plans go by what was there last",
			"resource", name, "error", err)
	}
	if s.denied != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		s.denied(fmt.Errorf("read %s of the cluster: %w", name, err))
	}
}

// sync waits until all objects were read once.
func (s *source) sync(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	waiting, denied := context.WithCancelCause(limited)
	defer denied(nil)
	s.mu.Lock()
	s.denied = denied
	s.mu.Unlock()
	s.factory.Start(ctx.Done())
	var synced []cache.InformerSynced
	for _, informer := range s.kinds {
		synced = append(synced, informer.HasSynced)
	}
	ok := cache.WaitForCacheSync(waiting.Done(), synced...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = nil
	if ok {
		return nil
	}
	if limited.Err() == nil {
		return context.Cause(waiting)
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		if !s.kinds[name].HasSynced() {
			missing = append(missing, fmt.Sprintf("%s (%v)", name, s.failed[name]))
		}
	}
	return fmt.Errorf("read the cluster: not within %v: %s", syncLimit, strings.Join(missing, ", "))
}

// close ends it, and waits for that.
func (s *source) close(cancel context.CancelFunc) {
	cancel()
	s.factory.Shutdown()
}

// snapshot is what there is now. The objects are shared, the lists are not.
func (s *source) snapshot() *deschedule.Snapshot {
	out := &deschedule.Snapshot{
		Budgets: list[policyv1.PodDisruptionBudget](s, "poddisruptionbudgets"),
		Classes: list[schedulingv1.PriorityClass](s, "priorityclasses"),
	}
	out.Nodes, out.Pods, out.Namespaces = list[v1.Node](s, "nodes"), list[v1.Pod](s, "pods"),
		list[v1.Namespace](s, "namespaces")
	out.Claims, out.Volumes = list[v1.PersistentVolumeClaim](s, "persistentvolumeclaims"),
		list[v1.PersistentVolume](s, "persistentvolumes")
	out.Evicted = planner.PastEvictions(out.Pods)
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
