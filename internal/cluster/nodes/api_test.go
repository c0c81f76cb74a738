package nodes

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// pipes are a network in memory, which virtual time knows.
type pipes struct {
	in   chan net.Conn
	done chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "api"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.in <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// api is an API server that does what a test tells it: it keeps nodes, pods, Leases and events, with versions and watches as the real one,
// and fails as it is asked to.
type api struct {
	t     *testing.T
	began time.Time

	mu      sync.Mutex
	changed chan struct{} // closed when something has changed, and made anew
	version int
	nodes   map[string]*v1.Node
	pods    map[string]*v1.Pod // by namespace/name
	leases  map[string]*coordination.Lease
	events  []*v1.Event
	log     []logged // what watches have to tell
	expired int      // watches from a version below it get 410
	drops   int      // raised: all watches end
	behind  string   // what is said of the node, or the Lease, of that name no watch tells
	counted map[string]int
	wrote   []write
	budget  bool // a disruption budget lets no pod go
	later   bool // and the API server says to ask again in ten seconds
	// fault is asked before each request by a client of a name: 0: it is answered, -1: it hangs until the client gives up, else the status.
	fault func(client string, r *http.Request) int
	// busy is asked, too: such a request is to be made again in a second.
	busy  func(*http.Request) bool
	clock time.Duration // what the API server's is before everybody's
}

type logged struct {
	version int
	kind    string // nodes, pods, leases
	how     string
	object  any
	name    string
}

// write is one that was done.
type write struct {
	at       time.Time
	client   string
	what     string // verb resource name
	pod      *v1.Pod
	node     *v1.Node // the pod's, or the one that was written, as it was before
	is       *v1.Node
	leased   time.Time // when the node's kubelet renewed last
	uid      types.UID // of the precondition
	disrupts bool      // DisruptionTarget was there
}

func newAPI(t *testing.T) *api {
	return &api{
		t: t, began: time.Now(), changed: make(chan struct{}), version: 100, nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{},
		leases: map[string]*coordination.Lease{}, counted: map[string]int{},
	}
}

// serve has it answer a client of a name until stop is called.
func (a *api) serve(client string) (c *rest.Config, stop func()) {
	p := &pipes{in: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.ServeHTTP(w, r, client) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(p)
	}()
	return &rest.Config{Host: "http://api", Dial: p.dial, QPS: 1000, Burst: 1000, UserAgent: "jettison-cluster/test",
			ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, func() {
			close(p.done)
			_ = s.Close()
			<-done
		}
}

// change changes what there is, and has all who wait look again.
func (a *api) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// count is how often something was asked.
func (a *api) count(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counted[what]
}

func (a *api) next() string {
	a.version++
	return strconv.Itoa(a.version)
}

// putNode makes a node, or another version of it.
func (a *api) putNode(n *v1.Node) {
	how := "MODIFIED"
	if a.nodes[n.Name] == nil {
		how = "ADDED"
	}
	n.ResourceVersion = a.next()
	a.nodes[n.Name] = n
	a.log = append(a.log, logged{a.version, "nodes", how, n, n.Name})
}

// visible is what the field selector of pods is.
func visible(p *v1.Pod) bool {
	return p != nil && p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
}

func (a *api) putPod(p *v1.Pod) {
	key := p.Namespace + "/" + p.Name
	was := a.pods[key]
	how := "MODIFIED"
	if !visible(was) {
		how = "ADDED"
	}
	p.ResourceVersion = a.next()
	if !visible(p) {
		if how == "ADDED" {
			a.pods[key] = p
			return
		}
		how = "DELETED"
	}
	a.pods[key] = p
	a.log = append(a.log, logged{a.version, "pods", how, p, ""})
}

// putLease renews, as the API server stamps it.
func (a *api) putLease(l *coordination.Lease) {
	key := l.Namespace + "/" + l.Name
	how := "MODIFIED"
	if a.leases[key] == nil {
		how = "ADDED"
	}
	l.ResourceVersion = a.next()
	a.leases[key] = l
	if l.Namespace == v1.NamespaceNodeLease {
		a.log = append(a.log, logged{a.version, "leases", how, l, l.Name})
	}
}

// await waits until a condition holds, which is looked at under the lock.
func (a *api) await(what string, holds func() bool) {
	a.t.Helper()
	limit := time.After(time.Hour)
	for {
		a.mu.Lock()
		ok, changed := holds(), a.changed
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			a.t.Fatalf("after an hour: not %s", what)
		}
	}
}

// verbOf is what a request wants.
func verbOf(r *http.Request, parts int) string {
	q := r.URL.Query()
	switch {
	case q.Get("watch") != "":
		return "WATCH"
	case r.Method == "GET" && parts == 1 && q.Get("limit") == "1":
		return "PROBE"
	case r.Method == "GET" && parts == 1 && strings.HasPrefix(q.Get("fieldSelector"), "metadata.name="):
		return "FIND"
	case r.Method == "GET" && parts == 1:
		return "LIST"
	}
	return r.Method
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request, client string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, p := range parts {
		if p == "v1" {
			parts = parts[i+1:]
			break
		}
	}
	a.mu.Lock()
	fault, busy, clock := a.fault, a.busy, a.clock
	a.mu.Unlock()
	w.Header().Set("Date", time.Now().Add(clock).UTC().Format(http.TimeFormat))
	if busy != nil && busy(r) {
		w.Header().Set("Retry-After", "1")
		refused(w, http.StatusTooManyRequests, "too many requests")
		return
	}
	if fault != nil {
		switch status := fault(client, r); status {
		case 0:
		case -1:
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
			<-r.Context().Done()
			return
		default:
			refused(w, status, "as the test wants")
			return
		}
	}
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	verb := verbOf(r, len(parts))
	a.mu.Lock()
	a.counted[verb+" "+parts[0]]++
	a.mu.Unlock()
	if verb == "WATCH" {
		a.watch(w, r, parts[0])
		return
	}
	out := httptest.NewRecorder() // nobody waits for who reads the answer while the lock is held
	a.respond(out, r, client, namespace, verb, parts)
	maps.Copy(w.Header(), out.Header())
	w.WriteHeader(out.Code)
	_, _ = w.Write(out.Body.Bytes())
}

func (a *api) respond(w http.ResponseWriter, r *http.Request, client, namespace, verb string, parts []string) {
	switch verb + " " + parts[0] {
	case "LIST nodes", "LIST pods", "LIST leases", "PROBE leases", "FIND leases":
		a.list(w, parts[0], strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
	case "GET nodes":
		a.get(w, func() any { return known(a.nodes[parts[1]]) })
	case "GET pods":
		a.get(w, func() any { return known(a.pods[namespace+"/"+parts[1]]) })
	case "GET leases":
		a.get(w, func() any { return known(a.leases[namespace+"/"+parts[1]]) })
	case "POST leases", "PUT leases":
		a.lease(w, r, namespace)
	case "PATCH nodes":
		a.patchNode(w, r, client, parts)
	case "PATCH pods":
		a.patchPod(w, r, client, namespace+"/"+parts[1])
	case "DELETE pods":
		a.deletePod(w, r, client, namespace+"/"+parts[1])
	case "POST pods":
		a.evictPod(w, r, client, namespace+"/"+parts[1])
	case "POST events":
		a.event(w, r)
	default:
		refused(w, http.StatusNotFound, verb+" "+r.URL.Path)
	}
}

// known is an object that is there; nil: none is.
func known[T any](o *T) any {
	if o == nil {
		return nil
	}
	return o
}

func (a *api) get(w http.ResponseWriter, find func() any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := find(); o != nil {
		answer(w, o)
		return
	}
	refused(w, http.StatusNotFound, "none of that name")
}

// list lists objects of a kind. only is a Lease's name; empty: all.
func (a *api) list(w http.ResponseWriter, kind, only string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}
	switch kind {
	case "nodes":
		out := v1.NodeList{ListMeta: meta}
		for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
			out.Items = append(out.Items, *a.nodes[name])
		}
		answer(w, out)
	case "pods":
		out := v1.PodList{ListMeta: meta}
		for _, key := range slices.Sorted(maps.Keys(a.pods)) {
			if visible(a.pods[key]) {
				out.Items = append(out.Items, *a.pods[key])
			}
		}
		answer(w, out)
	case "leases":
		out := coordination.LeaseList{ListMeta: meta}
		for _, key := range slices.Sorted(maps.Keys(a.leases)) {
			if l := a.leases[key]; l.Namespace == v1.NamespaceNodeLease && (only == "" || l.Name == only) {
				out.Items = append(out.Items, *a.leases[key])
			}
		}
		answer(w, out)
	}
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, kind string) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") != "" { // as servers before 1.32
		refused(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		return
	}
	since, _ := strconv.Atoi(q.Get("resourceVersion"))
	a.mu.Lock()
	drops, expired := a.drops, a.expired
	a.mu.Unlock()
	if since < expired {
		refused(w, http.StatusGone, "too old resource version")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		a.mu.Lock()
		var out []logged
		for _, e := range a.log {
			if e.version > since && e.kind == kind && (a.behind == "" || e.name != a.behind) {
				out = append(out, e)
			}
		}
		since = max(since, a.version)
		changed, ended := a.changed, a.drops != drops
		a.mu.Unlock()
		if ended {
			return
		}
		for _, e := range out {
			if json.NewEncoder(w).Encode(map[string]any{"type": e.how, "object": kinded(e.object)}) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func answer(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(kinded(o))
}

// kinded is an object that says what it is.
func kinded(o any) (out map[string]any) {
	text, _ := json.Marshal(o)
	_ = json.Unmarshal(text, &out)
	out["kind"], out["apiVersion"] = kindOf(o)
	return out
}

func kindOf(o any) (kind, version string) {
	switch o.(type) {
	case *v1.Node:
		return "Node", "v1"
	case *v1.Pod:
		return "Pod", "v1"
	case *v1.Event:
		return "Event", "v1"
	case *coordination.Lease:
		return "Lease", "coordination.k8s.io/v1"
	case v1.NodeList:
		return "NodeList", "v1"
	case v1.PodList:
		return "PodList", "v1"
	case coordination.LeaseList:
		return "LeaseList", "coordination.k8s.io/v1"
	}
	return "Status", "v1"
}

func refused(w http.ResponseWriter, code int, why string) {
	status := metav1.Status{Status: "Failure", Code: int32(code), Message: why}
	switch code {
	case http.StatusNotFound:
		status.Reason = metav1.StatusReasonNotFound
	case http.StatusConflict:
		status.Reason = metav1.StatusReasonConflict
	case http.StatusGone:
		status.Reason = metav1.StatusReasonExpired
	case http.StatusForbidden:
		status.Reason = metav1.StatusReasonForbidden
	case http.StatusUnprocessableEntity:
		status.Reason = metav1.StatusReasonInvalid
	case http.StatusInternalServerError:
		status.Reason = metav1.StatusReasonInternalError
	case http.StatusTooManyRequests:
		status.Reason = metav1.StatusReasonTooManyRequests
		if why == "budget" {
			status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(kinded(status))
}
