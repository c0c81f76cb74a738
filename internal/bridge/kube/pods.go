package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// NodePods lists and watches the pods that are bound to one node. newReducer is called once per
// list, even if the list has several pages; the function that it returns reduces each pod of that
// list.
func (c *Client) NodePods(node string, newReducer func() func(*v1.Pod) *v1.Pod) cache.ListerWatcher {
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	setSelector := func(o *metav1.ListOptions) { o.FieldSelector = selector }
	out := cache.NewFilteredListWatchFromClient(c.core, "pods", metav1.NamespaceAll, setSelector)
	var (
		mu     sync.Mutex // an abandoned list may still run when the next one begins
		reduce func(*v1.Pod) *v1.Pod
	)
	out.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		setSelector(&o)
		mu.Lock()
		defer mu.Unlock()
		if o.Continue == "" || reduce == nil {
			reduce = newReducer()
		}
		return listPods(ctx, c.core.Get().Resource("pods").VersionedParams(&o, metav1.ParameterCodec),
			reduce)
	}
	return out
}

// listTimeout limits one list including its response: a slow connection may take minutes for a few
// MiB, and a proxy may keep it open.
const listTimeout = 5 * time.Minute

// listPods makes one list request and reduces each pod as it is read. A server that does not
// support streaming lists may ignore the page size when it responds from its cache, and pods may
// have any size: the full list may not fit into memory, while the reduced one does. JSON can be
// read pod by pod.
func listPods(ctx context.Context, request *rest.Request, reduce func(*v1.Pod) *v1.Pod) (*v1.PodList,
	error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := request.SetHeader("Accept", "application/json").MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	defer body.Close()
	list, err := readPods(body, reduce)
	if err != nil {
		return nil, fmt.Errorf("list pods: read response: %w", err)
	}
	return list, nil
}

// readPods reads a PodList as JSON and accepts nothing else: a proxy may return any response, and
// an empty list would make the agent drop all pods.
func readPods(from io.Reader, reduce func(*v1.Pod) *v1.Pod) (*v1.PodList, error) {
	d := json.NewDecoder(from)
	if err := expectDelim(d, '{'); err != nil {
		return nil, err
	}
	var out v1.PodList
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "metadata":
			err = d.Decode(&out.ListMeta)
		case "kind":
			err = d.Decode(&out.Kind)
		case "apiVersion":
			err = d.Decode(&out.APIVersion)
		case "items":
			out.Items = nil
			err = readItems(d, func(p *v1.Pod) { out.Items = append(out.Items, *reduce(p)) })
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil { // missing end: the response is truncated
		return nil, err
	}
	if got := out.GroupVersionKind(); got != v1.SchemeGroupVersion.WithKind("PodList") {
		return nil, fmt.Errorf("got kind %.64q, apiVersion %.64q, want PodList, v1", out.Kind, out.APIVersion)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the list")
	}
	out.TypeMeta = metav1.TypeMeta{}
	return &out, nil
}

func readItems(d *json.Decoder, each func(*v1.Pod)) error {
	first, err := d.Token()
	if err != nil || first == nil { // null: no items
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("items: got %v, want a list", first)
	}
	for d.More() {
		var p v1.Pod
		if err := d.Decode(&p); err != nil {
			return err
		}
		each(&p)
	}
	_, err = d.Token()
	return err
}

// expectDelim reads the first token of a response.
func expectDelim(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("got %v, want %v", got, want)
	}
	return err
}
