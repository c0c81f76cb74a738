package bridge

import (
	"encoding/json"
	"fmt"
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

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// cluster is a fake API server, controlled by a test: it stores the pods of one node, events, one
// node and Leases, with versions and watches as the real one, and fails on request.
type cluster struct {
	t      testing.TB
	server *httptest.Server

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced after each change
	version  int
	pods     map[string]*v1.Pod // by namespace/name
	log      []watched          // watch events
	expired  int                // watches from an older version get 410
	inStream bool               // open watches get the 410 in their stream; otherwise they are closed
	events   map[string]*v1.Event
	created  []string // events by namespace/name, in order
	node     *v1.Node
	leases   map[string]*coordinationv1.Lease
	minor    string
	noStream bool // no streaming lists, as in servers before 1.32
	// 0: none; -1: hangs until the client cancels; -2: resets the connection
	fault   func(r *http.Request) (status int)
	resets  bool                                    // watches are reset a second after their headers
	patched func(was, is *v1.Pod, body podPatch)    // called for each applied patch
	refuse  func(*v1.Pod, podPatch) (status int)    // called for each patch; 0: accepted
	counted map[string]int                          // requests by verb and resource
	written map[string][]map[string]json.RawMessage // bodies of patches of nodes and leases
}

type watched struct {
	version int
	kind    string
	pod     *v1.Pod
}

// podPatch is what the bridge may write to a pod; any other field fails the test.
type podPatch struct {
	Metadata struct {
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Phase           v1.PodPhase       `json:"phase"`
		Reason, Message string            `json:""`
		Conditions      []v1.PodCondition `json:"conditions"`
	} `json:"status"`
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{
		t: t, changed: make(chan struct{}), version: 100, pods: map[string]*v1.Pod{}, events: map[string]*v1.Event{}, minor: "36",
		node:   &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}},
		leases: map[string]*coordinationv1.Lease{}, counted: map[string]int{}, written: map[string][]map[string]json.RawMessage{},
	}
	c.server = httptest.NewServer(c)
	t.Cleanup(func() {
		c.server.CloseClientConnections()
		c.server.Close()
	})
	return c
}

func (c *cluster) config() *rest.Config {
	return &rest.Config{Host: c.server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// change changes the cluster and wakes all waiting goroutines.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// put adds or replaces a pod.
func (c *cluster) put(p *v1.Pod) {
	c.change(func() {
		key, kind := p.Namespace+"/"+p.Name, "MODIFIED"
		if is := c.pods[key]; is == nil || is.UID != p.UID {
			kind = "ADDED"
			if is != nil {
				c.version++
				c.log = append(c.log, watched{c.version, "DELETED", is})
			}
		}
		c.store(key, kind, p.DeepCopy())
	})
}

func (c *cluster) store(key, kind string, p *v1.Pod) {
	c.version++
	p.ResourceVersion = strconv.Itoa(c.version)
	c.pods[key] = p
	c.log = append(c.log, watched{c.version, kind, p})
}

func (c *cluster) remove(namespace, name string) {
	c.change(func() {
		p := c.pods[namespace+"/"+name]
		delete(c.pods, namespace+"/"+name)
		c.version++
		gone := p.DeepCopy()
		gone.ResourceVersion = strconv.Itoa(c.version)
		c.log = append(c.log, watched{c.version, "DELETED", gone})
	})
}

// await waits until holds returns true. It is called under the lock.
func (c *cluster) await(what string, holds func() bool) {
	c.t.Helper()
	for {
		c.mu.Lock()
		ok, changed := holds(), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-c.t.Context().Done():
			c.t.Fatalf("the test ended before: %s", what)
		}
	}
}

// pod returns a pod, which must not be changed.
func (c *cluster) pod(key string) *v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[key]
}

// reasons returns the reasons of all events by namespace/name, sorted.
func (c *cluster) reasons() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(c.events)) {
		out = append(out, key+" "+c.events[key].Reason)
	}
	return out
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1"), "/api/v1"), "/")[1:]
	var fault func(*http.Request) int
	c.change(func() {
		fault = c.fault
		c.counted[r.Method+" "+parts[0]+" "+parts[len(parts)-1]]++
	})
	if fault != nil {
		switch status := fault(r); status {
		case 0:
		case -1:
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the connection is not noticed
			<-r.Context().Done()
			return
		case -2:
			c.reset(w)
			return
		default:
			refused(w, status, "as the test wants")
			return
		}
	}
	switch at := r.Method + " " + r.URL.Path; {
	case at == "GET /version":
		answer(w, map[string]string{"major": "1", "minor": c.minor})
	case at == "GET /api/v1/pods" && r.URL.Query().Get("watch") != "":
		c.watch(w, r)
	case at == "GET /api/v1/pods":
		c.list(w, r)
	case r.Method == "GET" && parts[0] == "nodes":
		c.mu.Lock()
		defer c.mu.Unlock()
		answer(w, c.node)
	case r.Method == "PATCH" && parts[0] == "nodes":
		c.patchNode(w, r)
	case len(parts) < 3 || parts[0] != "namespaces":
		refused(w, http.StatusNotFound, at)
	case r.Method == "GET" && parts[2] == "pods":
		if p := c.pod(parts[1] + "/" + parts[3]); p != nil {
			answer(w, p)
			return
		}
		refused(w, http.StatusNotFound, at)
	case r.Method == "PATCH" && parts[2] == "pods" && parts[4] == "status":
		c.patchPod(w, r, parts[1]+"/"+parts[3])
	case r.Method == "POST" && parts[2] == "events":
		c.createEvent(w, r, parts[1])
	case parts[2] == "leases":
		c.lease(w, r, parts[1])
	default:
		refused(w, http.StatusNotFound, at)
	}
}

// reset resets the connection of a request.
func (c *cluster) reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		c.t.Error(err)
		return
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		c.t.Error(err)
	}
	_ = conn.Close() // the client may have closed it
}

func answer(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

func refused(w http.ResponseWriter, code int, why string) {
	reason := metav1.StatusReason("")
	switch code {
	case http.StatusNotFound:
		reason = metav1.StatusReasonNotFound
	case http.StatusConflict:
		reason = metav1.StatusReasonConflict
	case http.StatusGone:
		reason = metav1.StatusReasonExpired
	case http.StatusForbidden:
		reason = metav1.StatusReasonForbidden
	}
	if why == "exists" {
		reason = metav1.StatusReasonAlreadyExists
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: why,
	})
}

// of returns the pods that a field selector matches. It fails the test for pods of another node.
func (c *cluster) of(r *http.Request) (out []v1.Pod) {
	if is := r.URL.Query().Get("fieldSelector"); is != "spec.nodeName=n1" {
		c.t.Errorf("pods requested by %q, want those of the node only", is)
	}
	for _, key := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[key]; p.Spec.NodeName == "n1" {
			out = append(out, *p)
		}
	}
	return out
}

func (c *cluster) list(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer(w, v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}, Items: c.of(r),
	})
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	stream := r.URL.Query().Get("sendInitialEvents") == "true"
	encode := json.NewEncoder(w)
	tell := func(kind string, p *v1.Pod) {
		p = p.DeepCopy()
		p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		_ = encode.Encode(map[string]any{"type": kind, "object": p})
	}
	c.mu.Lock()
	if stream && c.noStream {
		c.mu.Unlock()
		refused(w, http.StatusUnprocessableEntity, "sendInitialEvents: Forbidden")
		return
	}
	if !stream && from < c.expired {
		c.mu.Unlock()
		refused(w, http.StatusGone, "too old resource version")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if c.resets {
		c.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(1100 * time.Millisecond):
			c.reset(w)
		}
		return
	}
	if stream {
		for _, p := range c.of(r) {
			tell("ADDED", &p)
		}
		from = c.version
		tell("BOOKMARK", &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(from), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	for {
		for _, e := range c.log {
			if e.version > from && e.pod.Spec.NodeName == "n1" {
				tell(e.kind, e.pod)
				from = e.version
			}
		}
		changed, expired := c.changed, from < c.expired
		if expired && c.inStream {
			_ = encode.Encode(map[string]any{"type": "ERROR", "object": metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
			}})
		}
		c.mu.Unlock()
		w.(http.Flusher).Flush()
		if expired {
			return // close the connection
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		c.mu.Lock()
	}
}

func (c *cluster) patchPod(w http.ResponseWriter, r *http.Request, key string) {
	var p podPatch
	decode := json.NewDecoder(r.Body)
	decode.DisallowUnknownFields()
	if err := decode.Decode(&p); err != nil || r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
		c.t.Errorf("patch of %s: error %v, content type %s", key, err, r.Header.Get("Content-Type"))
	}
	c.change(func() {
		is := c.pods[key]
		switch {
		case is == nil:
			refused(w, http.StatusNotFound, key)
			return
		case p.Metadata.ResourceVersion != is.ResourceVersion || p.Metadata.UID != string(is.UID):
			refused(w, http.StatusConflict, "the object has been modified")
			return
		case c.refuse != nil:
			if status := c.refuse(is, p); status != 0 {
				refused(w, status, "by a policy")
				return
			}
		}
		next := is.DeepCopy()
		for k, v := range p.Metadata.Annotations {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, k, v)
		}
		if p.Status.Phase != "" {
			next.Status.Phase, next.Status.Reason, next.Status.Message = p.Status.Phase, p.Status.Reason, p.Status.Message
		}
		for _, n := range p.Status.Conditions {
			next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(o v1.PodCondition) bool { return o.Type == n.Type })
			next.Status.Conditions = append(next.Status.Conditions, n)
		}
		c.store(key, "MODIFIED", next)
		if c.patched != nil {
			c.patched(is, next, p)
		}
		answer(w, next)
	})
}

func (c *cluster) createEvent(w http.ResponseWriter, r *http.Request, namespace string) {
	var e v1.Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Namespace != namespace || e.Name == "" {
		c.t.Errorf("event %s/%s in namespace %s: error %v", e.Namespace, e.Name, namespace, err)
	}
	c.change(func() {
		key := namespace + "/" + e.Name
		if c.events[key] != nil {
			refused(w, http.StatusConflict, "exists")
			return
		}
		c.events[key] = &e
		c.created = append(c.created, key)
		answer(w, e)
	})
}

func (c *cluster) patchNode(w http.ResponseWriter, r *http.Request) {
	var body map[string]json.RawMessage
	var p struct {
		Status struct{ Conditions []v1.NodeCondition }
	}
	text, _ := io.ReadAll(r.Body)
	if json.Unmarshal(text, &body) != nil || json.Unmarshal(text, &p) != nil || len(body) != 1 || !strings.HasSuffix(r.URL.Path, "/nodes/n1/status") {
		c.t.Errorf("patch of %s has unexpected body %s", r.URL.Path, text)
	}
	c.change(func() {
		c.written["node"] = append(c.written["node"], body)
		c.version++
		c.node = c.node.DeepCopy()
		c.node.Status.Conditions = p.Status.Conditions // the node has no others
		answer(w, c.node)
	})
}

func (c *cluster) lease(w http.ResponseWriter, r *http.Request, namespace string) {
	var l coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		c.t.Error(err)
	}
	c.change(func() {
		if r.Method == "POST" {
			c.leases[namespace+"/"+l.Name] = &l
			answer(w, l)
			return
		}
		is := c.leases[namespace+"/n1"]
		if r.Method != "PATCH" || is == nil {
			refused(w, http.StatusNotFound, fmt.Sprint(r.Method, r.URL.Path))
			return
		}
		is.Annotations = l.Annotations
		c.version++
		answer(w, is)
	})
}
