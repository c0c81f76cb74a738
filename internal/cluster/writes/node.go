package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/lifecycle"
)

// Node describes the writes to a node, made in the order status, taints, labels.
type Node struct {
	Node        *v1.Node            // at the decision
	Lease       *coordination.Lease // at the decision; nil: none
	CheckLease  bool                // write nothing unless the Lease is still that of the decision
	AnyOwner    bool                // for CheckLease: also a Lease of another node of that name
	Status      []v1.NodeCondition  // changed conditions; empty: no write
	Taints      []v1.Taint          // the complete list
	WriteTaints bool                // write Taints
	Labels      map[string]string   // labels to set
}

// NodeResult is the result of the writes.
type NodeResult struct {
	Node *v1.Node // from the last response; nil: no response
	Gone bool     // the node of the decision does not exist any more
	// set if the node renewed its Lease and is not silent: nothing was written
	Renewed                *coordination.Lease
	Status, Labels, Taints error // of each requested part
}

// errConditionsNotWritten is the error of taints if the conditions that require them were not
// written.
var errConditionsNotWritten = errors.New("not written: writing the node's conditions failed")

// Node carries out the writes to a node. Writes to a deleted node count as successful.
func (w *Writer) Node(ctx context.Context, n *Node) (out NodeResult) {
	version := n.Node.ResourceVersion
	handle := func(node *v1.Node, err error) error {
		if err == nil {
			out.Node, version = node, node.ResourceVersion
		}
		if isNotFound(err) {
			out.Gone = true
			return nil
		}
		return err
	}
	hasTurn := false
	patch := func(kind types.PatchType, body *object, part ...string) error {
		if !hasTurn {
			if err := w.awaitTurn(ctx); err != nil {
				return err
			}
		}
		hasTurn = false
		return handle(w.patchNode(ctx, n.Node.Name, kind, body, part...))
	}
	if n.CheckLease {
		err := w.awaitTurn(ctx)
		if hasTurn = err == nil; hasTurn {
			out.Renewed, err = w.renewedLease(ctx, n)
		}
		if out.Renewed != nil {
			return out
		}
		out.Status, out.Taints = err, err
	}
	if len(n.Status) > 0 && out.Status == nil {
		body := object{Metadata: metadata{n.Node.UID, version, nil},
			Status: map[string]any{"conditions": n.Status}}
		out.Status = patch(types.StrategicMergePatchType, &body, "status")
	}
	if n.WriteTaints && !out.Gone && out.Taints == nil {
		out.Taints = errConditionsNotWritten
		if out.Status == nil {
			body := object{Metadata: metadata{n.Node.UID, version, nil},
				Spec: map[string]any{"taints": n.Taints}}
			out.Taints = patch(types.MergePatchType, &body)
		}
	}
	if len(n.Labels) > 0 && !out.Gone {
		body := object{Metadata: metadata{n.Node.UID, version, n.Labels}}
		out.Labels = patch(types.MergePatchType, &body)
	}
	if slices.ContainsFunc([]error{out.Status, out.Taints, out.Labels}, apierrors.IsConflict) {
		switch node, err := w.node(ctx, n.Node.Name); {
		case err == nil:
			out.Node = node // for the next decision
		case isNotFound(err):
			out.Gone = true
		}
	}
	return out
}

// renewedLease reads a silent node's Lease directly, because the watch may lag by an unknown time.
// It returns nil if the Lease was not renewed since the decision. The version precondition of the
// patch cannot replace this: a renewal does not change the node. It sends a list request, because
// the role for the watch includes that permission.
func (w *Writer) renewedLease(ctx context.Context, n *Node) (*coordination.Lease, error) {
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	all, err := w.reader.CoordinationV1().Leases(v1.NamespaceNodeLease).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", n.Node.Name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("read the lease of node %s: %w", n.Node.Name, err)
	}
	for i := range all.Items {
		if lease := &all.Items[i]; lease.Name == n.Node.Name &&
			(n.AnyOwner || !lifecycle.OfOtherNode(lease, n.Node)) &&
			(n.Lease == nil || !lease.Spec.RenewTime.Equal(n.Lease.Spec.RenewTime)) {
			return lease, nil
		}
	}
	return nil, nil
}

// patchNode patches a node, after awaitTurn.
func (w *Writer) patchNode(ctx context.Context, name string, kind types.PatchType, body *object,
	part ...string) (*v1.Node, error) {
	ctx, cancel := withWriteTimeout(ctx)
	defer cancel()
	node := &v1.Node{}
	err := atOnce(w.client.CoreV1().RESTClient().Patch(kind)).Resource("nodes").Name(name).SubResource(
		part...).Body(body.text()).
		Do(ctx).Into(node)
	if err != nil {
		return nil, fmt.Errorf("patch node %s: %w", name, err)
	}
	return node, nil
}
