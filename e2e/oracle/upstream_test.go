package oracle

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
)

var (
	nodesResource  = v1.SchemeGroupVersion.WithResource("nodes")
	podsResource   = v1.SchemeGroupVersion.WithResource("pods")
	leasesResource = coordination.SchemeGroupVersion.WithResource("leases")
)

// client is the fake client, with a REST client for events, which the lifecycle controller
// requires.
type client struct {
	*fake.Clientset
	events rest.Interface
}

func (c *client) CoreV1() v1core.CoreV1Interface { return &coreClient{c.Clientset.CoreV1(), c.events} }

type coreClient struct {
	v1core.CoreV1Interface
	events rest.Interface
}

func (c *coreClient) RESTClient() rest.Interface { return c.events }

// echo answers a write with its body.
func echo(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	header := http.Header{"Content-Type": r.Header["Content-Type"]}
	return &http.Response{StatusCode: http.StatusCreated, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, err
}

// theirs is one of upstream's controllers on a fake API server.
type theirs struct {
	*testing.T
	client *client
	line   *timeline
	run    func(ctx context.Context, f informers.SharedInformerFactory, wait *sync.WaitGroup)
	stop   func()

	mu      sync.Mutex // guards the fields below, and makes a read and its write atomic
	version int
	film    film
	tokens  map[string][]time.Duration // by zone: when one was spent
	gone    map[types.UID]time.Duration
}

// upstream plays a timeline's changes with a controller, in a bubble with a clock that advances
// when all goroutines wait.
func upstream(t *testing.T, line *timeline, changes []change, run func(*theirs)) (u *theirs) {
	synctest.Test(t, func(t *testing.T) {
		u = &theirs{T: t, line: line, film: film{}, tokens: map[string][]time.Duration{}, gone: map[types.UID]time.Duration{},
			client: &client{Clientset: fake.NewSimpleClientset(), events: &restfake.RESTClient{
				GroupVersion: v1.SchemeGroupVersion, VersionedAPIPath: "/api/v1", NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
				Client: restfake.CreateHTTPClient(echo),
			}}}
		u.client.PrependReactor("*", "*", u.serve)
		line.begin(u)
		run(u)
		u.start()
		for _, c := range changes {
			time.Sleep(time.Until(start.Add(c.at)))
			if c.restart {
				u.stop()
				u.start()
			} else {
				c.do(u)
			}
			synctest.Wait()
		}
		time.Sleep(time.Until(start.Add(line.end)))
		u.stop()
	})
	return u
}

// start starts the controller; stop ends it.
func (u *theirs) start() {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.New(sink{u})))
	f := informers.NewSharedInformerFactory(u.client, 0)
	var running sync.WaitGroup
	u.run(ctx, f, &running)
	u.stop = func() {
		cancel()
		running.Wait()
		f.Shutdown()
	}
}

// lifecycles runs the node-lifecycle-controller.
func lifecycles(u *theirs) {
	u.run = func(ctx context.Context, f informers.SharedInformerFactory, running *sync.WaitGroup) {
		c := u.line.config
		nodes, err := nodelifecycle.NewNodeLifecycleController(ctx, f.Coordination().V1().Leases(), f.Core().V1().Pods(),
			f.Core().V1().Nodes(), f.Apps().V1().DaemonSets(), u.client, c.NodeMonitorPeriod, c.NodeStartupGracePeriod,
			c.NodeMonitorGracePeriod, float32(c.NodeEvictionRate), float32(c.SecondaryNodeEvictionRate), c.LargeClusterSizeThreshold,
			c.UnhealthyZoneThreshold)
		if err != nil {
			u.Fatal(err)
		}
		f.Start(ctx.Done())
		running.Go(func() { nodes.Run(ctx) })
	}
}

// evictions runs the taint-eviction-controller.
func evictions(u *theirs) {
	u.run = func(ctx context.Context, f informers.SharedInformerFactory, running *sync.WaitGroup) {
		nodes, pods := f.Core().V1().Nodes(), f.Core().V1().Pods()
		if err := controller.AddPodNodeNameIndexer(pods.Informer()); err != nil { // the lifecycle controller adds the index for both
			u.Fatal(err)
		}
		taints, err := tainteviction.New(ctx, u.client, pods, nodes, "taint-eviction-controller")
		if err != nil {
			u.Fatal(err)
		}
		f.Start(ctx.Done())
		running.Go(func() { taints.Run(ctx) })
	}
}

// sink reads from a log which node used a token: one that was tainted, or one that was not although
// its token was used.
type sink struct{ *theirs }

func (sink) Init(logr.RuntimeInfo)            {}
func (sink) Enabled(level int) bool           { return level <= 4 }
func (sink) Error(error, string, ...any)      {}
func (s sink) WithValues(...any) logr.LogSink { return s }
func (s sink) WithName(string) logr.LogSink   { return s }
func (s sink) Info(_ int, message string, kv ...any) {
	taint := message == "Added taint to node"
	if !taint && message != "Node was in a taint queue, but it's ready now. Ignoring taint request" &&
		message != "Node no longer present in nodeLister" {
		return
	}
	var name string
	spent := !taint
	for i := 0; i+1 < len(kv); i += 2 {
		switch v := kv[i+1].(type) {
		case klog.ObjectRef:
			name = v.Name
		case []*v1.Taint:
			spent = spent || len(v) > 0 && v[0].Effect == v1.TaintEffectNoExecute
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	swapped := strings.Contains(s.film.is(nodeIs(name, evicts), time.Since(start)), ",") // a swap uses no token
	if spent && !swapped {
		zone := s.line.zones[name]
		s.tokens[zone] = append(s.tokens[zone], time.Since(start))
	}
}

// serve adds behaviour of an API server that the fake one lacks: a write based on an older version
// is a conflict, and a status write changes only the status.
func (u *theirs) serve(action core.Action) (bool, runtime.Object, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch a := action.(type) {
	case core.DeleteActionImpl:
		if p := u.pod(a.Namespace + "/" + a.Name); p != nil && a.Resource == podsResource {
			u.gone[p.UID] = time.Since(start)
		}
	case core.PatchActionImpl:
		if a.Resource == nodesResource {
			return u.patchNode(a.Name, a.Patch)
		}
	case core.UpdateActionImpl:
		switch o := a.Object.(type) {
		case *v1.Node:
			n := u.node(o.Name)
			if n == nil || n.ResourceVersion != o.ResourceVersion {
				return true, nil, conflict(nodesResource, o.Name)
			}
			n.Status = o.Status
			u.write(nodesResource, n, "", n.Name)
			return true, n, nil
		case *v1.Pod:
			p := u.pod(keyOf(o))
			if p == nil || p.ResourceVersion != o.ResourceVersion {
				return true, nil, conflict(podsResource, o.Name)
			}
			p.Status = o.Status
			u.write(podsResource, p, p.Namespace, p.Name)
			return true, p, nil
		}
	}
	return false, nil, nil
}

func conflict(resource schema.GroupVersionResource, name string) error {
	return apierrors.NewConflict(resource.GroupResource(), name, nil)
}

// patchNode applies the lifecycle controller's patches: taints and labels.
func (u *theirs) patchNode(name string, text []byte) (bool, runtime.Object, error) {
	var patch struct {
		Metadata struct {
			ResourceVersion string            `json:"resourceVersion"`
			Labels          map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Taints *[]v1.Taint `json:"taints"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &patch); err != nil {
		return true, nil, err
	}
	n := u.node(name)
	if n == nil || patch.Metadata.ResourceVersion != "" && patch.Metadata.ResourceVersion != n.ResourceVersion {
		return true, nil, conflict(nodesResource, name)
	}
	maps.Copy(n.Labels, patch.Metadata.Labels)
	if strings.Contains(string(text), `"taints"`) {
		n.Spec.Taints = nil
		if patch.Spec.Taints != nil {
			n.Spec.Taints = slices.Clone(*patch.Spec.Taints)
		}
	}
	u.write(nodesResource, n, "", name)
	return true, n, nil
}

func (u *theirs) get(resource schema.GroupVersionResource, namespace, name string) runtime.Object {
	o, err := u.client.Tracker().Get(resource, namespace, name)
	if err != nil {
		return nil
	}
	return o.DeepCopyObject()
}

// write stores an object in a new version. The caller holds the lock.
func (u *theirs) write(resource schema.GroupVersionResource, o runtime.Object, namespace, name string) {
	u.version++
	accessor, err := meta.Accessor(o)
	if err == nil {
		accessor.SetResourceVersion(strconv.Itoa(u.version))
		if u.get(resource, namespace, name) == nil {
			err = u.client.Tracker().Create(resource, o, namespace)
		} else {
			err = u.client.Tracker().Update(resource, o, namespace)
		}
	}
	if err != nil {
		u.Error(err)
	}
	switch o := o.(type) {
	case *v1.Node:
		u.film.seeNode(time.Since(start), name, o)
	case *v1.Pod:
		u.film.seePod(time.Since(start), keyOf(o), o)
	}
}

func (u *theirs) put(resource schema.GroupVersionResource, o runtime.Object, namespace, name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.write(resource, o, namespace, name)
}

func (u *theirs) drop(resource schema.GroupVersionResource, namespace, name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.client.Tracker().Delete(resource, namespace, name); err != nil {
		u.Error(err)
	}
	if resource == nodesResource {
		u.film.seeNode(time.Since(start), name, nil)
	} else {
		u.film.seePod(time.Since(start), namespace+"/"+name, nil)
	}
}

func (u *theirs) node(name string) *v1.Node {
	n, _ := u.get(nodesResource, "", name).(*v1.Node)
	return n
}

func (u *theirs) pod(key string) *v1.Pod {
	namespace, name, _ := strings.Cut(key, "/")
	p, _ := u.get(podsResource, namespace, name).(*v1.Pod)
	return p
}

func (u *theirs) podsOf(node string) (out []*v1.Pod) {
	for _, p := range u.line.pods { // a name is one pod's at a time
		if p := u.pod(keyOf(p)); p != nil && p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

func (u *theirs) putNode(n *v1.Node)             { u.put(nodesResource, n, "", n.Name) }
func (u *theirs) putPod(p *v1.Pod)               { u.put(podsResource, p, p.Namespace, p.Name) }
func (u *theirs) putLease(l *coordination.Lease) { u.put(leasesResource, l, l.Namespace, l.Name) }
func (u *theirs) dropNode(name string)           { u.drop(nodesResource, "", name) }
func (u *theirs) dropPod(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	u.drop(podsResource, namespace, name)
}
