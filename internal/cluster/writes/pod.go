package writes

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/taint"
	"jettison/internal/cluster/kubeclient"
)

// PodResult is the result of a write to a pod.
type PodResult struct {
	Pod  *v1.Pod // from the response; nil: no response
	Gone bool    // no pod with this UID exists any more
	// the node, if its taints differ from those of the decision: the pod is not deleted
	ChangedNode *v1.Node
	NodeGone    bool // the node of the decision does not exist any more: the pod is not deleted
}

// Reason and message of the condition DisruptionTarget
// (pkg/controller/tainteviction/taint_eviction.go, 1.37.2).
const (
	targetReason  = "DeletionByTaintManager"
	targetMessage = "Taint manager: deleting due to NoExecute taint"
)

// maxOvertaken limits the tries of a write that other clients overtake. The owner of a pod may
// change it all the time, so that every version from the watch is old; each try expects a version
// that was just read.
const maxOvertaken = 10

// unlessOvertaken makes a write to a pod, and repeats it with the current pod while it is overtaken
// and still decides that the pod is to be written.
func unlessOvertaken(p *v1.Pod, still func(*v1.Pod) bool,
	write func(*v1.Pod) (PodResult, error)) (out PodResult, err error) {
	for range maxOvertaken {
		if out, err = write(p); !apierrors.IsConflict(err) || out.Pod == nil || !still(out.Pod) {
			return out, err
		}
		p = out.Pod
	}
	return out, err
}

// Mark sets a pod's condition Ready to False. p is the pod at the decision.
func (w *Writer) Mark(ctx context.Context, p *v1.Pod, now time.Time) (PodResult, error) {
	still := func(is *v1.Pod) bool {
		return is.Spec.NodeName == p.Spec.NodeName &&
			slices.ContainsFunc(is.Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == v1.PodReady && c.Status != v1.ConditionFalse
			})
	}
	return unlessOvertaken(p, still, func(p *v1.Pod) (PodResult, error) {
		if err := w.awaitTurn(ctx); err != nil {
			return PodResult{}, err
		}
		return w.patchCondition(ctx, p, map[string]any{
			"type": v1.PodReady, "status": v1.ConditionFalse, "lastTransitionTime": metav1.NewTime(now),
		})
	})
}

// Evict deletes a pod if its node still has the taints of the decision. It sets the condition
// DisruptionTarget first. Within the PDB period after the toleration period it evicts the pod instead;
// if a disruption budget blocks that, IsBudgetError is true for the error. p and known are the pod and
// the node at the decision, e is the decision, and overdue the time since the end of the toleration
// period. now is a time of the API server's clock.
func (w *Writer) Evict(ctx context.Context, p *v1.Pod, known *v1.Node, e *taint.Eviction,
	overdue time.Duration, now time.Time) (PodResult, error) {
	taints := noExecuteTaints(known)
	decided := taint.Select(taints, e.Tolerations)
	still := func(is *v1.Pod) bool {
		return is.Spec.NodeName == p.Spec.NodeName && !taint.Terminating(is) &&
			equality.Semantic.DeepEqual(taint.Select(taints, is.Spec.Tolerations), decided)
	}
	return unlessOvertaken(p, still, func(p *v1.Pod) (PodResult, error) {
		if overdue < w.pdbPeriod {
			return w.ifTainted(ctx, known, func() (PodResult, error) { return w.evict(ctx, p) })
		}
		return w.disruptAndDelete(ctx, p, known, now)
	})
}

// ifTainted makes a write to a pod if its node still has the taints of the decision. It reads the
// node directly because the watch may lag, and last: the wait for the rate limit or a webhook of the
// previous write may take longer than the recovery of a node.
func (w *Writer) ifTainted(ctx context.Context, known *v1.Node,
	write func() (PodResult, error)) (PodResult, error) {
	if err := w.awaitTurn(ctx); err != nil {
		return PodResult{}, err
	}
	n, err := w.node(ctx, known.Name)
	switch {
	case isNotFound(err):
		return PodResult{NodeGone: true}, nil
	case err != nil:
		return PodResult{}, err
	case n.UID != known.UID || !slices.EqualFunc(noExecuteTaints(n), noExecuteTaints(known), sameTaint):
		return PodResult{ChangedNode: n}, nil
	}
	return write()
}

// disruptAndDelete sets the condition DisruptionTarget of a pod and deletes it. If the node loses the
// taints in between, the pod keeps the condition until kube-controller-manager's disruption
// controller resets it.
func (w *Writer) disruptAndDelete(ctx context.Context, p *v1.Pod, known *v1.Node,
	now time.Time) (PodResult, error) {
	result, err := w.ifTainted(ctx, known, func() (PodResult, error) {
		return w.patchCondition(ctx, p, map[string]any{
			"type": v1.DisruptionTarget, "status": v1.ConditionTrue,
			"lastTransitionTime": metav1.NewTime(now), "reason": targetReason, "message": targetMessage,
		})
	})
	switch {
	// without permission to write the status, the pod is still deleted
	case err != nil && !isRejected(err):
		return result, err
	case result.ChangedNode != nil, result.NodeGone:
		return result, nil
	// being deleted already, or finished
	case result.Gone, result.Pod != nil && taint.Terminating(result.Pod):
		return result, nil
	case err == nil:
		p = result.Pod
	}
	return w.ifTainted(ctx, known, func() (PodResult, error) { return w.delete(ctx, p) })
}

// preconditions returns the preconditions for the deletion of a pod.
func preconditions(p *v1.Pod) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}
}

// Tolerations reads a pod and returns those of its tolerations that decide on the taints.
func (w *Writer) Tolerations(ctx context.Context, r *taint.Read) (PodResult, []v1.Toleration,
	error) {
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	p, err := w.reader.CoreV1().Pods(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	switch {
	case isNotFound(err), err == nil && p.UID != r.UID:
		return PodResult{Gone: true}, nil, nil
	case err != nil:
		return PodResult{}, nil, fmt.Errorf("read pod %s/%s: %w", r.Namespace, r.Name, err)
	}
	return PodResult{Pod: p}, taint.Select(r.Taints, p.Spec.Tolerations), nil
}

func (w *Writer) node(ctx context.Context, name string) (*v1.Node, error) {
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	n, err := w.reader.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// noExecuteTaints returns the NoExecute taints of a node.
func noExecuteTaints(n *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints),
		func(t v1.Taint) bool { return t.Effect != v1.TaintEffectNoExecute })
}

// sameTaint reports whether two taints are the same one. A taint that was removed and added again
// has another TimeAdded.
func sameTaint(a, b v1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

// patchCondition writes one condition of a pod, after awaitTurn.
func (w *Writer) patchCondition(ctx context.Context, p *v1.Pod, c map[string]any) (PodResult,
	error) {
	limited, cancel := withWriteTimeout(ctx)
	defer cancel()
	body := object{Metadata: metadata{p.UID, p.ResourceVersion, nil},
		Status: map[string]any{"conditions": []any{c}}}
	pod := &v1.Pod{}
	err := atOnce(w.client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType)).Namespace(
		p.Namespace).Resource("pods").Name(p.Name).
		SubResource("status").Body(body.text()).Do(limited).Into(pod)
	if err == nil {
		return PodResult{Pod: pod}, nil
	}
	return w.checkGone(ctx, p, fmt.Errorf("patch pod %s/%s: %w", p.Namespace, p.Name, err))
}

// checkGone determines whether a write failed because the pod no longer exists or has another UID.
// After any other conflict it returns the current pod for the next decision.
func (w *Writer) checkGone(ctx context.Context, p *v1.Pod, err error) (PodResult, error) {
	if isNotFound(err) {
		return PodResult{Gone: true}, nil
	}
	if !apierrors.IsConflict(err) {
		return PodResult{}, err
	}
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	pod, getErr := w.reader.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case isNotFound(getErr), getErr == nil && pod.UID != p.UID:
		return PodResult{Gone: true}, nil
	case getErr != nil:
		return PodResult{}, err
	}
	return PodResult{Pod: pod}, err
}

// delete deletes a pod with its own grace period, after awaitTurn.
func (w *Writer) delete(ctx context.Context, p *v1.Pod) (PodResult, error) {
	limited, cancel := withWriteTimeout(ctx)
	defer cancel()
	o := metav1.DeleteOptions{Preconditions: preconditions(p)}
	response, err := atOnce(w.client.CoreV1().RESTClient().Delete()).Namespace(p.Namespace).Resource(
		"pods").Name(p.Name).Body(&o).
		Do(limited).Get()
	if err != nil {
		return w.checkGone(ctx, p, fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err))
	}
	if pod, ok := response.(*v1.Pod); ok && pod.DeletionTimestamp != nil {
		return PodResult{Pod: pod}, nil
	}
	return PodResult{Gone: true}, nil
}

// evict creates an Eviction of a pod, after awaitTurn.
func (w *Writer) evict(ctx context.Context, p *v1.Pod) (PodResult, error) {
	limited, cancel := withWriteTimeout(ctx)
	defer cancel()
	err := atOnce(kubeclient.EvictionRequest(w.client, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: preconditions(p)},
	})).Do(limited).Error()
	if err != nil {
		return w.checkGone(ctx, p, fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err))
	}
	pod, err := w.reader.CoreV1().Pods(p.Namespace).Get(limited, p.Name, metav1.GetOptions{})
	switch {
	case isNotFound(err), err == nil && pod.UID != p.UID: // the name may belong to another pod
		return PodResult{Gone: true}, nil
	case err != nil:
		return PodResult{}, nil // evicted; the watch reports the rest
	}
	return PodResult{Pod: pod}, nil
}
