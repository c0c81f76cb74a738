package nodes

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// pipeListener is a network in memory that works with synctest's virtual time.
type pipeListener struct {
	in   chan net.Conn
	done chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error   { return nil }
func (p *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "api"} }

func (p *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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

// api is an API server controlled by a test. It stores nodes, pods, Leases and events, with
// resource versions and watches like the real one, and injects faults.
type api struct {
	t         *testing.T
	checkDead func(context.Context, *v1.Node) (bool, error) // of later replicas; nil: the configured one
	startedAt time.Time

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced on each change
	version      int
	nodes        map[string]*v1.Node
	pods         map[string]*v1.Pod // by namespace/name
	leases       map[string]*coordination.Lease
	events       []*v1.Event
	log          []watchEvent // watch events
	expiredBelow int          // watches from an older version get 410
	watchEnds    int          // increment: all watches end
	hidden       string       // watches omit the node and the Lease of that name
	// by kind: watches deliver events that much later, so that answers arrive before them
	watchLag   map[string]time.Duration
	counted    map[string]int
	writeLog   []write
	budget     bool // a disruption budget blocks evictions
	retryAfter bool // the response of a blocked eviction asks for a retry after ten seconds
	// fault decides on each request of a client: 0 answers it, -1 hangs until the client gives up,
	// any other value is the response status.
	fault func(client string, r *http.Request) int
	// busy requests get status 429 and a retry after one second.
	busy func(*http.Request) bool
	skew time.Duration // the API server's clock minus the common clock
	// the wall clock of the replicas minus the common clock, which is their monotonic clock
	wallAhead time.Duration
	replicas  []*replica // that were started; used by the test's goroutine only
}

type watchEvent struct {
	at        time.Time
	version   int
	kind      string // nodes, pods, leases
	eventType string
	object    any
	name      string
}

// write is a completed write.
type write struct {
	at        time.Time
	client    string
	what      string // "VERB NAME"
	pod       *v1.Pod
	node      *v1.Node // the pod's node, or the written node before the write
	written   *v1.Node
	renewedAt time.Time // the last renewal of the node's kubelet
	uid       types.UID // the precondition
	disrupts  bool      // the pod had the condition DisruptionTarget
}

func newAPI(t *testing.T) *api {
	return &api{
		t: t, startedAt: time.Now(), changed: make(chan struct{}), version: 100, nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{},
		leases: map[string]*coordination.Lease{}, counted: map[string]int{},
	}
}

// serve serves requests of the named client until stop is called.
func (a *api) serve(client string) (c *rest.Config, stop func()) {
	p := &pipeListener{in: make(chan net.Conn), done: make(chan struct{})}
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

// wallClock returns the time of the replicas' wall clock.
func (a *api) wallClock() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Add(a.wallAhead)
}

// change applies a change and wakes the watches and waiters.
func (a *api) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// count returns the number of requests of that kind.
func (a *api) count(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counted[what]
}

func (a *api) nextVersion() string {
	a.version++
	return strconv.Itoa(a.version)
}

// addEvent adds an event for the watches, of the current version.
func (a *api) addEvent(kind, eventType string, object any, name string) {
	a.log = append(a.log, watchEvent{time.Now(), a.version, kind, eventType, object, name})
}

// removeNode deletes a node.
func (a *api) removeNode(name string) {
	n := a.nodes[name].DeepCopy()
	delete(a.nodes, name)
	n.ResourceVersion = a.nextVersion()
	a.addEvent("nodes", "DELETED", n, name)
}

// removePod deletes a pod without a grace period.
func (a *api) removePod(key string) {
	p := a.pods[key].DeepCopy()
	delete(a.pods, key)
	p.ResourceVersion = a.nextVersion()
	a.addEvent("pods", "DELETED", p, "")
}

// putNode adds a node or a new version of it.
func (a *api) putNode(n *v1.Node) {
	how := "MODIFIED"
	if a.nodes[n.Name] == nil {
		how = "ADDED"
	}
	n.ResourceVersion = a.nextVersion()
	a.nodes[n.Name] = n
	a.addEvent("nodes", how, n, n.Name)
}

// visible applies the field selector of the pod watch.
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
	p.ResourceVersion = a.nextVersion()
	if !visible(p) {
		if how == "ADDED" {
			a.pods[key] = p
			return
		}
		how = "DELETED"
	}
	a.pods[key] = p
	a.addEvent("pods", how, p, "")
}

// putLease stores a Lease with the API server's timestamp.
func (a *api) putLease(l *coordination.Lease) {
	key := l.Namespace + "/" + l.Name
	how := "MODIFIED"
	if a.leases[key] == nil {
		how = "ADDED"
	}
	l.ResourceVersion = a.nextVersion()
	a.leases[key] = l
	if l.Namespace == v1.NamespaceNodeLease {
		a.addEvent("leases", how, l, l.Name)
	}
}

// await waits until the condition is true. It evaluates the condition under the lock.
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
			a.t.Fatalf("not reached within an hour: %s", what)
		}
	}
}

// verbOf returns the kind of a request.
func verbOf(r *http.Request, parts int) string {
	q := r.URL.Query()
	switch {
	case q.Get("watch") != "":
		return "WATCH"
	case r.Method == "GET" && parts == 1 && q.Get("limit") == "1":
		return "PROBE"
	case r.Method == "GET" && parts == 1 && strings.HasPrefix(q.Get("fieldSelector"), "metadata.name="):
		return "FIND"
	case r.Method == "GET" && parts == 1 && q.Get("labelSelector") != "":
		return "SELECT"
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
	fault, busy, clock := a.fault, a.busy, a.skew
	a.mu.Unlock()
	w.Header().Set("Date", time.Now().Add(clock).UTC().Format(http.TimeFormat))
	if busy != nil && busy(r) {
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusTooManyRequests, "too many requests")
		return
	}
	if fault != nil {
		switch status := fault(client, r); status {
		case 0:
		case -1:
			// otherwise the end of the connection is not noticed
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		default:
			writeError(w, status, "fault of the test")
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
	out := httptest.NewRecorder() // the lock is not held while the client reads
	a.respond(out, r, client, namespace, verb, parts)
	maps.Copy(w.Header(), out.Header())
	w.WriteHeader(out.Code)
	_, _ = w.Write(out.Body.Bytes())
}

func (a *api) respond(w http.ResponseWriter, r *http.Request, client, namespace, verb string, parts []string) {
	switch verb + " " + parts[0] {
	case "LIST nodes", "LIST pods", "LIST leases", "PROBE leases", "FIND leases":
		a.list(w, parts[0], strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
	case "SELECT pods", "SELECT nodes":
		a.selectByLabel(w, parts[0], namespace, r.URL.Query())
	case "GET nodes":
		a.get(w, func() any { return orNil(a.nodes[parts[1]]) })
	case "GET pods":
		a.get(w, func() any { return orNil(a.pods[namespace+"/"+parts[1]]) })
	case "GET leases":
		a.get(w, func() any { return orNil(a.leases[namespace+"/"+parts[1]]) })
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
		writeError(w, http.StatusNotFound, verb+" "+r.URL.Path)
	}
}

// orNil avoids a non-nil interface with a nil pointer.
func orNil[T any](o *T) any {
	if o == nil {
		return nil
	}
	return o
}

func (a *api) get(w http.ResponseWriter, find func() any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := find(); o != nil {
		writeObject(w, o)
		return
	}
	writeError(w, http.StatusNotFound, "not found")
}

// list writes the objects of a kind. only is the name of a Lease; empty: all.
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
		writeObject(w, out)
	case "pods":
		out := v1.PodList{ListMeta: meta}
		for _, key := range slices.Sorted(maps.Keys(a.pods)) {
			if visible(a.pods[key]) {
				out.Items = append(out.Items, *a.pods[key])
			}
		}
		writeObject(w, out)
	case "leases":
		out := coordination.LeaseList{ListMeta: meta}
		for _, key := range slices.Sorted(maps.Keys(a.leases)) {
			if l := a.leases[key]; l.Namespace == v1.NamespaceNodeLease && (only == "" || l.Name == only) {
				out.Items = append(out.Items, *a.leases[key])
			}
		}
		writeObject(w, out)
	}
}

// selectByLabel writes the nodes, or the pods of a namespace, that a label selector matches, and a
// field selector for the node of a pod.
func (a *api) selectByLabel(w http.ResponseWriter, kind, namespace string, q url.Values) {
	matches, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	node, onNode := strings.CutPrefix(q.Get("fieldSelector"), "spec.nodeName=")
	a.mu.Lock()
	defer a.mu.Unlock()
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}
	if kind == "nodes" {
		out := v1.NodeList{ListMeta: meta}
		for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
			if n := a.nodes[name]; matches.Matches(labels.Set(n.Labels)) {
				out.Items = append(out.Items, *n)
			}
		}
		writeObject(w, out)
		return
	}
	out := v1.PodList{ListMeta: meta}
	for _, key := range slices.Sorted(maps.Keys(a.pods)) {
		if p := a.pods[key]; p.Namespace == namespace && matches.Matches(labels.Set(p.Labels)) && (!onNode || p.Spec.NodeName == node) {
			out.Items = append(out.Items, *p)
			a.counted["selected pods of "+p.Spec.NodeName]++
		}
	}
	writeObject(w, out)
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, kind string) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") != "" { // like servers before 1.32
		writeError(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		return
	}
	since, _ := strconv.Atoi(q.Get("resourceVersion"))
	a.mu.Lock()
	drops, expired := a.watchEnds, a.expiredBelow
	a.mu.Unlock()
	if since < expired {
		writeError(w, http.StatusGone, "too old resource version")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		a.mu.Lock()
		var out []watchEvent
		var later <-chan time.Time
		upTo := a.version
		for _, e := range a.log {
			if e.version <= since || e.kind != kind {
				continue
			}
			if wait := time.Until(e.at.Add(a.watchLag[kind])); wait > 0 {
				later, upTo = time.After(wait), e.version-1
				break
			}
			if a.hidden == "" || e.name != a.hidden {
				out = append(out, e)
			}
		}
		since = max(since, upTo)
		changed, ended := a.changed, a.watchEnds != drops
		a.mu.Unlock()
		if ended {
			return
		}
		for _, e := range out {
			if json.NewEncoder(w).Encode(map[string]any{"type": e.eventType, "object": withKind(e.object)}) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-later:
		case <-r.Context().Done():
			return
		}
	}
}

func writeObject(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(withKind(o))
}

// withKind returns an object with kind and apiVersion.
func withKind(o any) (out map[string]any) {
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

func writeError(w http.ResponseWriter, code int, why string) {
	status := metav1.Status{Status: "Failure", Code: int32(code), Message: why}
	switch code {
	case http.StatusNotFound:
		status.Reason, status.Details = metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: why}
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
	_ = json.NewEncoder(w).Encode(withKind(status))
}
