package kube

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// Node gets a node.
func (c *Client) Node(ctx context.Context, name string) (*v1.Node, error) {
	var out v1.Node
	if err := c.do(ctx, "get nodes "+name, c.core.Get().Resource("nodes").Name(name),
		&out); err != nil {
		return nil, err
	}
	return &out, nil
}

// PatchNodeStatus applies a strategic merge patch to a node's status and returns the resulting
// node.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	var out v1.Node
	o := object{resource: "nodes", name: name, subresource: "status"}
	if err := c.patch(ctx, c.core, types.StrategicMergePatchType, o, body, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// EachNode calls each for every node of the cluster, page by page, until each returns an error. It
// is for an operator's command: bridges may not list nodes.
func (c *Client) EachNode(ctx context.Context, each func(*v1.Node) error) error {
	return eachPage(func(o *metav1.ListOptions) (more string, err error) {
		var list v1.NodeList
		if err := c.do(ctx, "list nodes", c.core.Get().Resource("nodes").VersionedParams(o,
			metav1.ParameterCodec), &list); err != nil {
			return "", err
		}
		for i := range list.Items {
			if err := each(&list.Items[i]); err != nil {
				return "", err
			}
		}
		return list.Continue, nil
	})
}

// eachPage calls list for each page of a list. If the server has expired the continue token, it
// continues once with the token that the server returns instead.
func eachPage(list func(*metav1.ListOptions) (more string, err error)) error {
	next := metav1.ListOptions{Limit: pageSize}
	for resumed := false; ; {
		more, err := list(&next)
		var status apierrors.APIStatus
		switch {
		case err == nil:
			resumed = false
		case apierrors.IsResourceExpired(err) && next.Continue != "" && !resumed &&
			errors.As(err, &status) && status.Status().Continue != "":
			more, resumed = status.Status().Continue, true
		default:
			return err
		}
		if next.Continue = more; more == "" {
			return nil
		}
	}
}

// DefaultLeaseNamespace is the namespace of the Leases that carry the nodes' load.
const DefaultLeaseNamespace = "jettison-system"

// ValidateLeaseNamespace returns an error if name is no valid namespace name.
func ValidateLeaseNamespace(name string) error {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return fmt.Errorf("lease namespace %.64q: %s", name, wrong[0])
	}
	return nil
}

// PatchLease applies a merge patch to a Lease.
func (c *Client) PatchLease(ctx context.Context, namespace, name string, body []byte) error {
	return c.patch(ctx, c.coordination, types.MergePatchType,
		object{resource: "leases", namespace: namespace, name: name}, body, nil)
}

// CreateLease creates a Lease.
func (c *Client) CreateLease(ctx context.Context, l *coordinationv1.Lease) error {
	return c.do(WithWebhookTimeout(ctx), "create leases "+l.Namespace+"/"+l.Name,
		c.coordination.Post().Namespace(l.Namespace).Resource("leases").Body(l), nil)
}

// Leases lists the Leases of a namespace. It is for an operator's command.
func (c *Client) Leases(ctx context.Context, namespace string) (all []coordinationv1.Lease,
	err error) {
	err = eachPage(func(o *metav1.ListOptions) (more string, err error) {
		var list coordinationv1.LeaseList
		request := c.coordination.Get().Namespace(namespace).Resource("leases").VersionedParams(o,
			metav1.ParameterCodec)
		if err := c.do(ctx, "list leases of "+namespace, request, &list); err != nil {
			return "", err
		}
		all = append(all, list.Items...)
		return list.Continue, nil
	})
	return all, err
}

// DeleteLease deletes a Lease. It is for an operator's command.
func (c *Client) DeleteLease(ctx context.Context, namespace, name string) error {
	return c.do(ctx, "delete leases "+namespace+"/"+name,
		c.coordination.Delete().Namespace(namespace).Resource("leases").Name(name), nil)
}
