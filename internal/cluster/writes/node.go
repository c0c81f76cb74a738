package writes

import (
	"context"
	"errors"
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what is written to a node, in this order.
type Node struct {
	Node        *v1.Node            // as it was decided about
	Lease       *coordination.Lease // of that name, as it was then; nil: there was none
	Status      []v1.NodeCondition  // that change; none: it is not written
	Taints      []v1.Taint          // all that it is to have
	WriteTaints bool                // Taints are to be written
	Labels      map[string]string   // that are set
}

// Written is what came of it.
type NodeResult struct {
	Node *v1.Node // as the API has answered last; nil: it has not
	// set where the node is not silent after all: nothing was written
	Renewed                *coordination.Lease
	Status, Labels, Taints error // of each part that was to be written
}

// errUnsaid is of taints that were not written since the conditions that they follow from could not
// be.
var errConditionsNotWritten = errors.New("not written: its conditions could not be")

// Node writes to a node. A node that is gone needs nothing.
func (w *Writer) Node(ctx context.Context, n *Node) (out NodeResult) {
	version := n.Node.ResourceVersion
	took := func(is *v1.Node, err error) error {
		if err == nil {
			out.Node, version = is, is.ResourceVersion
		}
		if isNotFound(err) {
			return nil
		}
		return err
	}
	if len(n.Status) > 0 {
		if out.Renewed, out.Status = w.renewedLease(ctx, n); out.Renewed != nil {
			return out
		}
	}
	if len(n.Status) > 0 && out.Status == nil {
		body := object{Metadata: metadata{n.Node.UID, version, nil},
			Status: map[string]any{"conditions": n.Status}}
		out.Status = took(w.patchNode(ctx, n.Node.Name, types.StrategicMergePatchType, &body, "status"))
	}
	if n.WriteTaints {
		out.Taints = errConditionsNotWritten
		if out.Status == nil {
			body := object{Metadata: metadata{n.Node.UID, version, nil},
				Spec: map[string]any{"taints": n.Taints}}
			out.Taints = took(w.patchNode(ctx, n.Node.Name, types.MergePatchType, &body))
		}
	}
	// They come last: they ask for no version, and what they are answered may have taints of others by
	// then.
	if len(n.Labels) > 0 {
		body := object{Metadata: metadata{n.Node.UID, "", n.Labels}}
		out.Labels = took(w.patchNode(ctx, n.Node.Name, types.MergePatchType, &body))
	}
	if apierrors.IsConflict(out.Status) || apierrors.IsConflict(out.Taints) {
		ctx, cancel := withTimeout(ctx)
		defer cancel()
		if is, err := w.client.CoreV1().Nodes().Get(ctx, n.Node.Name, metav1.GetOptions{}); err == nil {
			out.Node = is // so that the next decision is about what is there
		}
	}
	return out
}

// heard reads a silent node's Lease from where it is written: a watch may be behind, and nobody
// knows by how much; the patch's version cannot tell, since whoever renews a Lease leaves the node
// as it is. nil: it was not renewed since it was decided that the node is silent. It is listed, not
// gotten, since that is what reading it by a watch asks of a role.
func (w *Writer) renewedLease(ctx context.Context, n *Node) (*coordination.Lease, error) {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	all, err := w.reader.CoordinationV1().Leases(v1.NamespaceNodeLease).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", n.Node.Name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("read the lease of node %s: %w", n.Node.Name, err)
	}
	for i := range all.Items {
		if is := &all.Items[i]; is.Name == n.Node.Name &&
			(n.Lease == nil || !is.Spec.RenewTime.Equal(n.Lease.Spec.RenewTime)) {
			return is, nil
		}
	}
	return nil, nil
}

func (w *Writer) patchNode(ctx context.Context, name string, kind types.PatchType, body *object,
	part ...string) (*v1.Node, error) {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	is := &v1.Node{}
	err := withoutRetries(w.client.CoreV1().RESTClient().Patch(kind)).Resource("nodes").Name(name).SubResource(
		part...).Body(body.text()).
		Do(ctx).Into(is)
	if err != nil {
		return nil, fmt.Errorf("patch node %s: %w", name, err)
	}
	return is, nil
}
