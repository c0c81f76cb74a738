package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"jettison/api"
	"jettison/internal/bridge/verdict"
	"jettison/stats"
)

// server is an API server with the objects of a cluster, in protobuf and in pages.
type server struct {
	t   testing.TB
	url string
	// exec runs a command in a pod: it returns what the command prints, and its exit code.
	exec func(pod string, args []string) (stdout, stderr string, code int)

	mu        sync.Mutex
	nodes     []v1.Node
	agents    []v1.Pod
	leases    []coordinationv1.Lease
	events    []v1.Event
	forbidden []string       // resources that may not be read, and pods/exec
	counted   map[string]int // requests by verb and resource
	watchers  map[string][]chan any
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, counted: map[string]int{}, watchers: map[string][]chan any{}}
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s.url = h.URL
	return s
}

// kubeconfig writes a kubeconfig for the server.
func (s *server) kubeconfig() string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "config")
	text := "clusters: [{name: c, cluster: {server: '" + s.url + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// counts returns the numbers of requests so far.
func (s *server) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for what, n := range s.counted {
		out[what] = n
	}
	return out
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, q := parts[len(parts)-1], r.URL.Query()
	named := ""
	if n := len(parts); n > 1 && parts[n-2] == "nodes" {
		resource, named = "nodes", parts[n-1]
	}
	verb := "list"
	switch {
	case q.Get("watch") != "":
		verb = "watch"
	case resource == "exec":
		verb, resource, named = "create", "pods/exec", parts[len(parts)-2]
	case named != "":
		verb = "get"
	}
	s.mu.Lock()
	s.counted[verb+" "+resource]++
	denied := slices.Contains(s.forbidden, resource)
	s.mu.Unlock()
	switch {
	case denied:
		s.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("%s is forbidden: User \"reader\" cannot %s resource %q", resource, verb, resource))
	case verb == "create":
		s.serveExec(w, r, named)
	case verb == "watch":
		s.serveWatch(w, r, resource)
	case verb == "get":
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.IndexFunc(s.nodes, func(n v1.Node) bool { return n.Name == named })
		if i < 0 {
			s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "nodes "+named+" not found")
			return
		}
		s.write(w, &s.nodes[i])
	default:
		s.serveList(w, r, resource)
	}
}

func (s *server) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: message})
}

var encoder = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func (s *server) write(w http.ResponseWriter, o runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err == nil {
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		err = encoder.Encode(o, w)
	}
	if err != nil {
		s.t.Logf("write %T: %v", o, err)
	}
}

// page returns the objects of one page that a list selects, and the token of the next page.
func page[T any](all []T, r *http.Request, selected func(*T) bool) (items []T, meta metav1.ListMeta) {
	q := r.URL.Query()
	for i := range all {
		if selected(&all[i]) {
			items = append(items, all[i])
		}
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	items = items[min(from, len(items)):]
	meta.ResourceVersion = "7"
	if limit > 0 && len(items) > limit {
		items, meta.Continue = items[:limit], strconv.Itoa(from+limit)
	}
	return items, meta
}

func (s *server) serveList(w http.ResponseWriter, r *http.Request, resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	matches := func(m metav1.ObjectMeta) bool { return selector.Matches(labels.Set(m.Labels)) }
	switch resource {
	case "nodes":
		items, meta := page(s.nodes, r, func(n *v1.Node) bool { return matches(n.ObjectMeta) })
		s.write(w, &v1.NodeList{ListMeta: meta, Items: items})
	case "pods":
		node, one := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		items, meta := page(s.agents, r, func(p *v1.Pod) bool {
			return strings.Contains(r.URL.Path, "/"+p.Namespace+"/") && matches(p.ObjectMeta) && (!one || p.Spec.NodeName == node)
		})
		s.write(w, &v1.PodList{ListMeta: meta, Items: items})
	case "leases":
		items, meta := page(s.leases, r, func(l *coordinationv1.Lease) bool { return strings.Contains(r.URL.Path, "/"+l.Namespace+"/") })
		s.write(w, &coordinationv1.LeaseList{ListMeta: meta, Items: items})
	case "events":
		source, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "source=")
		items, meta := page(s.events, r, func(e *v1.Event) bool { return e.Source.Component == source })
		s.write(w, &v1.EventList{ListMeta: meta, Items: items})
	default:
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path)
	}
}

// serveWatch sends the objects of notify.
func (s *server) serveWatch(w http.ResponseWriter, r *http.Request, resource string) {
	c := make(chan any, 10)
	s.mu.Lock()
	s.watchers[resource] = append(s.watchers[resource], c)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case o, ok := <-c:
			if !ok {
				return
			}
			_ = json.NewEncoder(w).Encode(o)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// notify sends an event to the watches of pods. It waits for the first watch.
func (s *server) notify(kind string, pod v1.Pod) {
	s.t.Helper()
	for range 3000 {
		s.mu.Lock()
		all := slices.Clone(s.watchers["pods"])
		s.mu.Unlock()
		if len(all) == 0 {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for _, c := range all {
			c <- map[string]any{"type": kind, "object": pod}
		}
		return
	}
	s.t.Error("no watch of pods within 30 s")
}

// serveExec serves a command over a WebSocket, as an API server does from v1.30 on.
func (s *server) serveExec(w http.ResponseWriter, r *http.Request, pod string) {
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	c, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.t.Logf("upgrade: %v", err)
		return
	}
	defer func() { _ = c.Close() }()
	q := r.URL.Query()
	if got := q["container"]; !slices.Equal(got, []string{"agent"}) {
		s.t.Errorf("exec in container %q, want agent", got)
	}
	stdout, stderr, code := s.exec(pod, q["command"])
	if code < 0 { // the command hangs, until the client closes the connection
		_, _, _ = c.ReadMessage()
		return
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}}}
	}
	text, _ := json.Marshal(status) // cannot fail
	for _, m := range []struct {
		channel byte
		text    string
	}{{1, stdout}, {2, stderr}, {3, string(text)}} {
		if m.text == "" {
			continue
		}
		if err := c.WriteMessage(websocket.BinaryMessage, append([]byte{m.channel}, m.text...)); err != nil {
			s.t.Logf("write to the client: %v", err)
		}
	}
	_ = c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}

// addNode adds a node of usual size.
func (s *server) addNode(name string, conditions ...v1.NodeCondition) {
	n := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-" + "x", Labels: map[string]string{"kubernetes.io/hostname": name, "pool": "a"}}}
	n.Status.Conditions = append([]v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}, conditions...)
	n.Status.Capacity = v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}
	for i := range 50 { // nodeStatusMaxImages of a kubelet
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{SizeBytes: 1 << 20, Names: []string{
			fmt.Sprintf("registry.example/team/image-%d@sha256:%064d", i, i), fmt.Sprintf("registry.example/team/image-%d:v1.2.%d", i, i)}})
	}
	s.nodes = append(s.nodes, n)
}

// addAgent adds a pod of the agent.
func (s *server) addAgent(node string, state v1.ContainerState, args ...string) {
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "jettison-" + node, Labels: map[string]string{"app.kubernetes.io/name": "jettison"}},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "agent", Image: "localhost/jettison:v0.1.0", Args: append([]string{"run"}, args...)}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
			{Name: "agent", Ready: state.Running != nil, State: state, RestartCount: 1}}}}
	s.agents = append(s.agents, p)
}

var running = v1.ContainerState{Running: &v1.ContainerStateRunning{}}

// bridged adds what the bridge of a node writes for a state of its agent.
func (s *server) bridged(now time.Time, node string, state *api.State) (conditions []v1.NodeCondition) {
	load, ok := verdict.LoadOf(state)
	if !ok {
		s.t.Fatal("the state has no load")
	}
	s.leases = append(s.leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "jettison-system", Name: node,
		Annotations: map[string]string{api.LoadAnnotation: load.Annotation()}}})
	for _, e := range verdict.Findings(state, node) {
		s.events = append(s.events, *e)
	}
	return verdict.NodeConditions(now, state, now, nil, verdict.NodeOptions{Period: 5 * time.Minute})
}

// stateOf returns the state of an agent with a part of its memory available.
func stateOf(now time.Time, available uint64) *api.State {
	whole, used := uint64(8<<30), uint64(8<<30)-available
	return &api.State{Time: now, Version: "v0.1.0", Kubelet: true,
		Signals: []api.SignalState{{Signal: stats.SignalMemoryAvailable, Observed: true, Available: available, Capacity: whole,
			Threshold: []string{"memory.available<100Mi"}, Limits: []uint64{100 << 20}}},
		Load: &api.LoadState{Time: now, Memory: api.MemoryLoad{CapacityBytes: &whole, WorkingSetBytes: &used},
			Pressure: api.PressureSet{Memory: &api.PressureState{Some: &api.StallState{Avg60: 12.3}, Full: &api.StallState{}},
				IO: &api.PressureState{Some: &api.StallState{Avg60: 3}}}}}
}

// evicted adds the event of an evicted pod.
func (s *server) evicted(now time.Time, node, pod string) {
	r := &api.Record{ID: now.UTC().Format("20060102T150405.000000Z") + "-" + cmp.Or(node, "0"), Pod: api.Victim{UID: "u", Namespace: "shop", Name: pod},
		Signal: stats.SignalMemoryAvailable, Threshold: "memory.available<100Mi", StatusReason: "Evicted", Outcome: api.OutcomeBack, Message: "The node was low on resource: memory.",
		Annotations: map[string]string{"starved_resource": "memory"}, Began: api.Stamp{Time: now}, Killed: api.Stamp{Time: now}, Emptied: api.Stamp{Time: now}}
	for _, e := range verdict.Events(now, r, verdict.Verdict{}, node, false) {
		s.events = append(s.events, *e)
	}
}
