package writes

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/cluster/kubeclient"
)

// Pod is what came of a write to a pod.
type PodResult struct {
	Pod  *v1.Pod // as the API has answered; nil: it has not
	Gone bool    // there is none of this UID any more
	// its node, where that has other taints than those for which the pod was to go: it is decided anew
	ChangedNode *v1.Node
}

// What DisruptionTarget says of pods that taints drive away
// (pkg/controller/tainteviction/taint_eviction.go, 1.36.3).
const (
	targetReason  = "DeletionByTaintManager"
	targetMessage = "Taint manager: deleting due to NoExecute taint"
)

// Mark makes a pod's condition Ready False.
func (w *Writer) Mark(ctx context.Context, m *lifecycle.Mark) (PodResult, error) {
	return w.patchCondition(ctx, m.Namespace, m.Name, m.UID, map[string]any{
		"type": v1.PodReady, "status": v1.ConditionFalse, "lastTransitionTime": metav1.Now(),
	})
}

// Evict has a pod go, if its node still has the taints that it was known to have, which are read
// from where they are written: a watch may be behind. The pod is told why, and deleted. Where
// disruption budgets are asked, and the time for that is not over, it is evicted instead, and an
// error that is Budgeted says that it may not go yet.
func (w *Writer) Evict(ctx context.Context, e *taint.Eviction, known *v1.Node) (PodResult, error) {
	n, err := w.node(ctx, e.Node)
	if err != nil {
		return PodResult{}, err
	}
	if n.UID != known.UID || !slices.EqualFunc(noExecuteTaints(n), noExecuteTaints(known), sameTaint) {
		return PodResult{ChangedNode: n}, nil
	}
	if w.pdbPeriod > 0 && time.Now().Before(e.Deadline.Add(w.pdbPeriod)) {
		return w.evict(ctx, e)
	}
	is, err := w.patchCondition(ctx, e.Namespace, e.Name, e.UID, map[string]any{
		"type": v1.DisruptionTarget, "status": v1.ConditionTrue, "lastTransitionTime": metav1.Now(),
		"reason":  targetReason,
		"message": targetMessage,
	})
	switch {
	case err != nil && !isRejected(err): // whoever may not write a status still has pods go
		return is, err
	case is.Gone, is.Pod != nil && taint.Terminating(is.Pod): // it is going by itself
		return is, nil
	}
	return w.delete(ctx, e)
}

func (w *Writer) node(ctx context.Context, name string) (*v1.Node, error) {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	n, err := w.reader.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// evicting are the taints of a node that have pods go.
func noExecuteTaints(n *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints),
		func(t v1.Taint) bool { return t.Effect != v1.TaintEffectNoExecute })
}

// same reports whether two are one taint: one that was set anew has another time.
func sameTaint(a, b v1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

// condition writes one of a pod's conditions.
func (w *Writer) patchCondition(ctx context.Context, namespace, name string, uid types.UID,
	c map[string]any) (PodResult, error) {
	limited, cancel := withTimeout(ctx)
	defer cancel()
	body := object{Metadata: metadata{UID: uid}, Status: map[string]any{"conditions": []any{c}}}
	is := &v1.Pod{}
	err := withoutRetries(w.client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType)).Namespace(
		namespace).Resource("pods").Name(name).
		SubResource("status").Body(body.text()).Do(limited).Into(is)
	if err == nil {
		return PodResult{Pod: is}, nil
	}
	return w.checkGone(ctx, namespace, name, uid, fmt.Errorf("patch pod %s/%s: %w", namespace, name,
		err))
}

// missing finds out whether a write failed because the pod is not there, or another has its name.
func (w *Writer) checkGone(ctx context.Context, namespace, name string, uid types.UID,
	err error) (PodResult, error) {
	if isNotFound(err) {
		return PodResult{Gone: true}, nil
	}
	if !apierrors.IsConflict(err) {
		return PodResult{}, err
	}
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	is, why := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if isNotFound(why) || why == nil && is.UID != uid {
		return PodResult{Gone: true}, nil
	}
	return PodResult{Pod: is}, err
}

// delete deletes a pod, with the grace period that it asks for.
func (w *Writer) delete(ctx context.Context, e *taint.Eviction) (PodResult, error) {
	limited, cancel := withTimeout(ctx)
	defer cancel()
	o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.UID}}
	answer, err := withoutRetries(w.client.CoreV1().RESTClient().Delete()).Namespace(e.Namespace).Resource(
		"pods").Name(e.Name).Body(&o).
		Do(limited).Get()
	if err != nil {
		return w.checkGone(ctx, e.Namespace, e.Name, e.UID, fmt.Errorf("delete pod %s/%s: %w", e.Namespace,
			e.Name, err))
	}
	if is, ok := answer.(*v1.Pod); ok && is.DeletionTimestamp != nil {
		return PodResult{Pod: is}, nil
	}
	return PodResult{Gone: true}, nil
}

// evict asks for a pod to be evicted.
func (w *Writer) evict(ctx context.Context, e *taint.Eviction) (PodResult, error) {
	limited, cancel := withTimeout(ctx)
	defer cancel()
	err := kubeclient.Evict(limited, w.client, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.UID}},
	})
	if err != nil {
		return w.checkGone(ctx, e.Namespace, e.Name, e.UID, fmt.Errorf("evict pod %s/%s: %w", e.Namespace,
			e.Name, err))
	}
	is, err := w.client.CoreV1().Pods(e.Namespace).Get(limited, e.Name, metav1.GetOptions{})
	if err != nil || is.UID != e.UID {
		return PodResult{Gone: true}, nil // it may be another's by now; the watch tells
	}
	return PodResult{Pod: is}, nil
}
