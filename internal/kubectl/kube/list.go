package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"jettison/internal/base/output"
	"jettison/internal/kubectl/fleet"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// Selection selects nodes.
type Selection struct {
	Labels string   // a label selector; empty: all
	Names  []string // empty: all
}

// query lists the objects of one kind.
type query struct {
	kind                fleet.Kind
	client, watch       rest.Interface
	resource, namespace string
	selectors           metav1.ListOptions
	list                func() runtime.Object
}

// queries returns the query of each kind.
func (c *Client) queries(s Selection) []query {
	pods := func() runtime.Object { return &v1.PodList{} }
	agents := query{fleet.Agents, c.core, c.watchCore, "pods", c.Namespace,
		metav1.ListOptions{LabelSelector: fleet.Selector}, pods}
	nodes := query{fleet.Nodes, c.core, c.watchCore, "nodes", "",
		metav1.ListOptions{LabelSelector: s.Labels}, func() runtime.Object { return &v1.NodeList{} }}
	leases := query{fleet.Leases, c.coordination, c.watchCoordination, "leases", c.LeaseNamespace,
		metav1.ListOptions{}, func() runtime.Object { return &coordinationv1.LeaseList{} }}
	events := query{fleet.Events, c.core, c.watchCore, "events", "",
		metav1.ListOptions{FieldSelector: "source=" + fleet.Component},
		func() runtime.Object { return &v1.EventList{} }}
	return []query{nodes, agents, leases, events}
}

func (q *query) request(from rest.Interface, o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = q.selectors.LabelSelector, q.selectors.FieldSelector
	return from.Get().NamespaceIfScoped(q.namespace, q.namespace != "").Resource(q.resource).
		VersionedParams(&o, metav1.ParameterCodec)
}

// all lists the objects and returns the version of the list, from which a watch continues.
func (q *query) all(ctx context.Context) (found []runtime.Object, version string, err error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list := q.list()
		if err := q.request(q.client, o).Do(ctx).Into(list); err != nil {
			return nil, err
		}
		if m, err := meta.ListAccessor(list); err == nil {
			version = m.GetResourceVersion() // of the first page: a watch repeats what came later
		}
		return list, nil
	})
	pages.PageSize, pages.PageBufferSize = pageSize, 0
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		found = append(found, o)
		return nil
	})
	return found, version, err
}

// List lists the objects of each kind once. If a kind cannot be listed, the result has the reason.
// Without nodes, List fails.
func (c *Client) List(ctx context.Context, s Selection) (*fleet.Objects, error) {
	store := newStore(s)
	var lists sync.WaitGroup
	for _, q := range c.queries(s) {
		lists.Go(func() { _, _ = store.list(ctx, &q) }) // the store has the error
	}
	lists.Wait()
	return store.objects()
}

// store holds the objects of each kind.
type store struct {
	selection Selection
	changed   chan struct{} // one slot

	mu    sync.Mutex
	kinds map[fleet.Kind]map[string]runtime.Object
	errs  map[fleet.Kind]error
}

func newStore(s Selection) *store {
	return &store{selection: s, changed: make(chan struct{}, 1),
		kinds: map[fleet.Kind]map[string]runtime.Object{}, errs: map[fleet.Kind]error{}}
}

// list replaces the objects of a kind.
func (s *store) list(ctx context.Context, q *query) (version string, err error) {
	found, version, err := q.all(ctx)
	all := make(map[string]runtime.Object, len(found))
	for _, o := range found {
		all[key(o)] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errs[q.kind] = err; err == nil {
		s.kinds[q.kind] = all
	}
	s.notify()
	return version, err
}

func (s *store) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func key(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetNamespace() + "/" + m.GetName()
}

// objects returns the current objects of all kinds.
func (s *store) objects() (*fleet.Objects, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.errs[fleet.Nodes]; err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := &fleet.Objects{Nodes: typed[*v1.Node](s.kinds[fleet.Nodes]),
		Agents: typed[*v1.Pod](s.kinds[fleet.Agents]),
		Leases: typed[*coordinationv1.Lease](s.kinds[fleet.Leases]),
		Events: typed[*v1.Event](s.kinds[fleet.Events])}
	for kind, err := range s.errs {
		if err == nil {
			continue
		}
		if out.Unknown == nil {
			out.Unknown = map[fleet.Kind]string{}
		}
		out.Unknown[kind] = output.OneLine(err.Error())
	}
	if len(s.selection.Names) > 0 {
		return out, s.selection.choose(out)
	}
	return out, nil
}

func typed[T runtime.Object](all map[string]runtime.Object) []T {
	out := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// errNoNode reports a name that no selected node has.
var errNoNode = errors.New("kubectl get nodes lists the nodes")

// choose keeps the nodes of the selected names.
func (s *Selection) choose(o *fleet.Objects) error {
	byName := map[string]*v1.Node{}
	for _, n := range o.Nodes {
		byName[n.Name] = n
	}
	o.Nodes = nil
	for _, name := range s.Names {
		n := byName[name]
		if n == nil {
			return fmt.Errorf("node %.64q does not exist: %w", name, errNoNode)
		}
		o.Nodes = append(o.Nodes, n)
		delete(byName, name)
	}
	return nil
}
