package kube

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// PodsOf lists and watches the pods that are bound to one node, and no others. What a list has of each pod is what cutter's function leaves
// of it; a list has one of its own, however many pages it comes in.
func (c *Client) PodsOf(node string, cutter func() func(*v1.Pod) *v1.Pod) cache.ListerWatcher {
	of := fields.OneTermEqualSelector("spec.nodeName", node).String()
	selects := func(o *metav1.ListOptions) { o.FieldSelector = of }
	out := cache.NewFilteredListWatchFromClient(c.core, "pods", metav1.NamespaceAll, selects)
	var (
		mu  sync.Mutex // a list that was given up may not have ended when the next one begins
		cut func(*v1.Pod) *v1.Pod
	)
	out.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		selects(&o)
		mu.Lock()
		defer mu.Unlock()
		if o.Continue == "" || cut == nil {
			cut = cutter()
		}
		return listPods(ctx, c.core.Get().Resource("pods").VersionedParams(&o, metav1.ParameterCodec), cut)
	}
	return out
}

// Pod gets one pod; nil: there is none of that name.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	var out v1.Pod
	o := object{resource: "pods", namespace: namespace, name: name}
	if namespace == "" { // which the request finds out only when it is made
		return nil, fmt.Errorf("get %v: %w", o, errNoName)
	}
	err := c.do(ctx, "get "+o.String(), c.core.Get().Namespace(namespace).Resource(o.resource).Name(name), &out)
	switch {
	case apierrors.IsNotFound(err) && Means(err) == NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &out, nil
}

// PatchPodStatus applies a strategic merge patch to a pod's status, and returns the pod as it is then.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	var out v1.Pod
	o := object{"pods", namespace, name, "status"}
	if err := c.patch(ctx, c.core, types.StrategicMergePatchType, o, body, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
