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

// PodsOf lists and watches the pods that are bound to one node, and no others. What a list has of
// each pod is what cutter's function leaves of it; a list has one of its own, however many pages it
// comes in.
func (c *Client) NodePods(node string, cutter func() func(*v1.Pod) *v1.Pod) cache.ListerWatcher {
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
		return listPods(ctx, c.core.Get().Resource("pods").VersionedParams(&o, metav1.ParameterCodec),
			cut)
	}
	return out
}

// listLimit is for one list, its answer included, whoever stands before the API server and keeps
// the connection open: a slow line may take minutes for some MiB.
const listTimeout = 5 * time.Minute

// listPods makes one list of pods and cuts each as it comes. A server that cannot send a list as a
// watch has no bound for its answer where it answers from memory, and authors make pods as large as
// they like: what is kept of all would fit, and all do not. As JSON a list can be read pod by pod.
func listPods(ctx context.Context, request *rest.Request, cut func(*v1.Pod) *v1.Pod) (*v1.PodList,
	error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := request.SetHeader("Accept", "application/json").MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	defer body.Close()
	list, err := readPods(body, cut)
	if err != nil {
		return nil, fmt.Errorf("list pods: read the answer: %w", err)
	}
	return list, nil
}

// readPods reads a PodList as JSON, and nothing else: what stands before an API server may answer
// with whatever it likes, and a list of no pods has the agent believe that all are gone.
func readPods(from io.Reader, cut func(*v1.Pod) *v1.Pod) (*v1.PodList, error) {
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
			err = readItems(d, func(p *v1.Pod) { out.Items = append(out.Items, *cut(p)) })
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil { // the end, without which it was cut short
		return nil, err
	}
	if is := out.GroupVersionKind(); is != v1.SchemeGroupVersion.WithKind("PodList") {
		return nil, fmt.Errorf("it is a %.64q of %.64q, want a PodList of v1", out.Kind, out.APIVersion)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the list")
	}
	out.TypeMeta = metav1.TypeMeta{}
	return &out, nil
}

func readItems(d *json.Decoder, each func(*v1.Pod)) error {
	first, err := d.Token()
	if err != nil || first == nil { // null: there are none
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("items are %v, want a list", first)
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

// begin reads what an answer has to begin with.
func expectDelim(d *json.Decoder, want json.Delim) error {
	is, err := d.Token()
	if err == nil && is != want {
		err = fmt.Errorf("it begins with %v, want %v", is, want)
	}
	return err
}
