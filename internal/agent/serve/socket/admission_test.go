package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/admit"
	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/podjson"
	"jettison/stats"
	"jettison/stats/read"
)

// decider answers with a given result and records the calls.
type decider struct {
	result admit.Result
	err    error
	wait   bool // until the context ends

	mu    sync.Mutex
	calls []string // "ask UID source" or "preempt UID source"
}

func (d *decider) Ask(ctx context.Context, p *v1.Pod, by podstore.Role) (admit.Result, error) {
	call := "ask"
	if by == podstore.ByMember {
		call = "ask by member"
	}
	return d.answer(ctx, call, p)
}

func (d *decider) Preempt(ctx context.Context, p *v1.Pod) (admit.Result, error) {
	return d.answer(ctx, "preempt", p)
}

func (d *decider) answer(ctx context.Context, call string, p *v1.Pod) (admit.Result, error) {
	d.mu.Lock()
	d.calls = append(d.calls, strings.TrimSpace(call+" "+string(p.UID)+" "+p.Annotations["kubernetes.io/config.source"]))
	d.mu.Unlock()
	if d.wait {
		<-ctx.Done()
		return admit.Result{}, ctx.Err()
	}
	return d.result, d.err
}

// take returns the calls since the last take.
func (d *decider) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.calls = nil }()
	return d.calls
}

var refusal = admit.Result{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "}

const (
	yamlPod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: default\n  uid: u-1\nspec:\n  containers:\n  - name: c\n    image: x\n"
	refused = `"admit":false,"reason":"Evicted","message":"The node had condition: [MemoryPressure]. "`
)

// Each way to request admission is answered, and each error names its place.
func TestAdmissionRequests(t *testing.T) {
	d := &decider{result: refusal}
	path, _ := start(t, Options{Admission: d}, patient)
	c := client(t, path)
	named := func(rest string) string {
		return `{"metadata":{"uid":"a","namespace":"default","name":"web"` + rest + `}`
	}
	asJSON, asYAML := []string{"Content-Type", "application/json"}, []string{"Content-Type", "application/yaml; charset=utf-8"}
	for _, r := range []struct {
		name, target, body string
		header             []string
		status             int
		want               string // the answer, or a part of the error text
		calls              string
	}{
		{"JSON", "", pod("a"), asJSON, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"JSON without a type", "", " \n" + pod("a"), nil, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"YAML", "", yamlPod, asYAML, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"YAML without a type", "", "---\n" + yamlPod, nil, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"JSON called YAML", "", pod("a"), []string{"Content-Type", "text/yaml"}, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"sent by curl --data-binary", "", yamlPod, []string{"Content-Type", "application/x-www-form-urlencoded"}, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"no preemption", "?preempt=false", pod("a"), nil, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"fields of a newer API", "", named(`},"spec":{"shiny":1,"containers":[{"name":"c","lustre":{}}]}`), nil, 200,
			`{"uid":"a",` + refused + `,"unknownFields":["spec.shiny","spec.containers[0].lustre"]}`, "ask a"},
		{"claimed static by the client", "", named(`,"annotations":{"kubernetes.io/config.source":"file","kubernetes.io/config.mirror":"x"}},"spec":{"containers":[{"name":"c"}]}`), nil, 200,
			`{"uid":"a",` + refused + `}`, "ask a"},

		{"empty", "", "", nil, 400, "empty text: want one pod", ""},
		{"empty JSON", "", "", asJSON, 400, "incomplete text", ""},
		{"no object", "", `7`, nil, 400, "the pod: want an object, got 7", ""},
		{"a list", "", `[` + pod("a") + `]`, asJSON, 400, "the pod: want an object, got a list", ""},
		{"no JSON", "", `{"metadata":`, nil, 400, "incomplete text", ""},
		{"two pods", "", pod("a") + pod("b"), nil, 400, "more text after the pod", ""},
		{"documents without content", "", "---\n# Source: a.yaml\n---\n" + yamlPod + "---\n", nil, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"two documents", "", yamlPod + "---\n" + yamlPod, nil, 400, "line 11: a second document: want one pod", ""},
		{"no YAML", "", "a: b: c", nil, 400, "not YAML: mapping values are not allowed in this context", ""},
		{"YAML called JSON", "", yamlPod, asJSON, 400, "invalid character 'a' looking for beginning of value", ""},
		{"an alias", "", "metadata: &m {uid: a}\nspec: *m\n", nil, 400, "line 2: alias *m not supported: write its content instead", ""},
		{"a key twice in YAML", "", yamlPod + "kind: Pod\n", nil, 400, `not YAML: line 11: key "kind" already set in map`, ""},
		{"a key twice in JSON", "", named(`},"spec":{"nodeName":"a","nodeName":"b"}`), nil, 400, `duplicate field "spec.nodeName"`, ""},
		{"another kind", "", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n", nil, 400, `apiVersion "apps/v1", kind "Deployment": want v1, Pod`, ""},
		{"no UID", "", `{"metadata":{"namespace":"default","name":"web"}}`, nil, 400, "metadata.uid: missing", ""},
		{"no UID in YAML", "", strings.Replace(yamlPod, "  uid: u-1\n", "", 1), nil, 400, "metadata.uid: missing", ""},
		{"an odd UID", "", `{"metadata":{"uid":"../a","namespace":"default","name":"web"}}`, nil, 400, `metadata.uid: "../a": want letters, digits and -`, ""},
		{"no namespace", "", `{"metadata":{"uid":"a","name":"web"}}`, nil, 400, "metadata.namespace: missing", ""},
		{"no name", "", `{"metadata":{"uid":"a","namespace":"default"}}`, nil, 400, "metadata.name: missing", ""},
		{"no container", "", named(`},"spec":{}`), nil, 400, "spec.containers: missing", ""},
		{"misspelled spec", "", strings.Replace(yamlPod, "spec:", "specs:", 1), nil, 400, `spec.containers: missing; unknown field "specs"`, ""},
		{"an odd name", "", `{"metadata":{"uid":"a","namespace":"default","name":"Web_1"}}`, nil, 400, `metadata.name: "Web_1": a lowercase RFC 1123 subdomain must consist of`, ""},
		{"a text for a number", "", named(`},"spec":{"priority":"high"}`), nil, 400, "spec.priority: want a whole number of 32 bits, got \"high\"", ""},
		{"no quantity", "", named(`},"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"lots"}}}]}`), nil, 400,
			`spec.containers[0].resources.requests.memory: want a quantity, got "lots"`, ""},
		{"a negative quantity", "", named(`},"spec":{"overhead":{"cpu":"-1"}}`), nil, 400, `spec.overhead.cpu: quantity "-1" is negative`, ""},
		{"a quantity that takes hours", "", named(`},"spec":{"overhead":{"cpu":"1e-99990000"}}`), nil, 400, "spec.overhead.cpu: quantity", ""},
		{"too much memory when decoded", "", named(`},"spec":{"containers":[` + strings.Repeat("{},", 40000) + `{}]}`), nil, 413, "more than 2097152 bytes of memory when decoded", ""},
		{"too much YAML", "", yamlPod + "# " + strings.Repeat("x", podjson.MaxYAML), nil, 413, "more than 262144 bytes of YAML for one pod: send it as JSON (kubectl ... -o json)", ""},
		{"too many values in YAML", "", yamlPod + "status: [" + strings.Repeat("[],", 9000) + "]\n", nil, 413, "more than about 10000 values of YAML for one pod: send it as JSON (kubectl ... -o json)", ""},
		{"10 MB", "", named(`,"labels":{"a":"` + strings.Repeat("v", 10<<20) + `"}}`), nil, 413, "the body is larger than 1048576 bytes", ""},
		{"wrong type", "", pod("a"), []string{"Content-Type", "text/html"}, 415, `Content-Type "text/html": want application/json or application/yaml`, ""},
		{"invalid type", "", pod("a"), []string{"Content-Type", "/"}, 415, `Content-Type "/": want application/json or application/yaml`, ""},
		{"compressed", "", pod("a"), []string{"Content-Encoding", "gzip"}, 415, `Content-Encoding "gzip": send the text uncompressed`, ""},
		{"neither true nor false", "?preempt=1", pod("a"), nil, 400, `preempt="1": want true or false`, ""},
		{"twice", "?preempt=true&preempt=false", pod("a"), nil, 400, `query: preempt is given more than once`, ""},
		{"another parameter", "?force=true", pod("a"), nil, 400, `query: this path has only preempt`, ""},
		{"preemption for an unknown pod", "?preempt=true", pod("a"), nil, 404,
			`metadata.uid: neither the runtime nor a static manifest has a pod with the uid "a": no pod is preempted`, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			began := time.Now()
			got := ask(t, c, "POST", "/v1/admit"+r.target, r.body, r.header...)
			var answer api.ErrorAnswer
			switch err := json.Unmarshal([]byte(got.text), &answer); {
			case got.status != r.status || err != nil:
				t.Errorf("answer = %d %s, decode error %v; want %d %s", got.status, got.text, err, r.status, r.want)
			case r.status == 200 && got.text != r.want, !strings.Contains(answer.Error, r.want) && r.status != 200:
				t.Errorf("answer text = %s, want %s", got.text, r.want)
			}
			if calls := strings.Join(d.take(), ","); calls != r.calls {
				t.Errorf("calls = %q, want %q", calls, r.calls)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("answer took %v, want at most a minute", d)
			}
		})
	}
	if got := ask(t, c, "GET", "/v1/admit", ""); got.status != 405 || got.header.Get("Allow") != "POST" {
		t.Errorf("answer to GET = %d %s, Allow %q; want 405, POST", got.status, got.text, got.header.Get("Allow"))
	}
}

// A body is read up to its limit only. One that announces a larger length is not read.
func TestEndlessBody(t *testing.T) {
	path, _ := start(t, Options{Admission: &decider{}}, patient)
	announced := dial(t, path)
	send(t, announced, "POST /v1/admit HTTP/1.1\r\nHost: j\r\nConnection: close\r\nContent-Length: 1048577\r\n\r\n")
	if text, _ := io.ReadAll(announced); !strings.HasPrefix(string(text), "HTTP/1.1 413") {
		t.Errorf("answer to a large Content-Length = %.300s, want 413", text)
	}
	c := dial(t, path)
	sent := make(chan int)
	go func() {
		n := 0
		w := httputil.NewChunkedWriter(c)
		_, err := io.WriteString(c, "POST /v1/admit HTTP/1.1\r\nHost: j\r\nTransfer-Encoding: chunked\r\n\r\n")
		for chunk := []byte(strings.Repeat(" ", 64<<10)); err == nil && n < 100<<20; n += len(chunk) {
			_, err = w.Write(chunk)
		}
		sent <- n
	}()
	text, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(text), "HTTP/1.1 413") || !strings.Contains(string(text), "the body is larger than 1048576 bytes") {
		t.Errorf("answer to an endless body = %.300s, want 413 with the limit", text)
	}
	c.Close()
	if n := <-sent; n > 4<<20 {
		t.Errorf("server read %d bytes of an endless body, want about 1 MiB", n)
	}
}

// Only root preempts, for a pod of the runtime or a manifest. The source of the pod is that of the
// runtime or manifest, not the client's.
func TestPreemption(t *testing.T) {
	d := &decider{result: admit.Result{Admit: true}}
	path, pods := start(t, Options{Admission: d, Group: group}, patient)
	pods.SetManifests([]*v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{UID: "m-1", Namespace: "default", Name: "web"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bound"}},
	})
	of := func(uid, name, source string) *read.Pod {
		p := &read.Pod{PodRef: stats.PodReference{UID: uid, Namespace: "default", Name: name}, Annotations: map[string]string{}}
		if source != "" {
			p.Annotations["kubernetes.io/config.source"] = source
		}
		return p
	}
	pods.SetRuntime(read.Index{
		"r-1": of("r-1", "web", ""), "r-2": of("r-2", "web", "api"), "r-3": of("r-3", "web", "file"), "r-4": of("r-4", "other", ""),
		"r-5": of("r-5", "bound", ""), "r-7": of("r-7", "own", ""), "r-6": {PodRef: stats.PodReference{UID: "r-6"}},
	})
	c := client(t, path)
	static := `{"metadata":{"uid":%q,"namespace":"default","name":%q,"annotations":{"kubernetes.io/config.source":"file"}},"spec":{"containers":[{}]}}`
	for _, r := range []struct {
		uid, name string
		status    int
		calls     string
	}{
		{"r-1", "web", 200, "preempt r-1 file"},
		{"r-7", "own", 200, "preempt r-7"},
		{"r-2", "web", 200, "preempt r-2 api"},
		{"r-3", "web", 200, "preempt r-3 file"},
		{"r-5", "bound", 200, "preempt r-5 file"},
		{"r-6", "web", 200, "preempt r-6"},
		{"m-1", "web", 200, "preempt m-1 file"},
		{"r-4", "web", 400, ""},
		{"m-1", "other", 400, ""},
		{"x", "web", 404, ""},
		{"", "web", 400, ""},
	} {
		got := ask(t, c, "POST", "/v1/admit?preempt=true", fmt.Sprintf(static, r.uid, r.name))
		if calls := strings.Join(d.take(), ","); got.status != r.status || calls != r.calls {
			t.Errorf("%s %s: got %d %s, calls %q; want %d, %q", r.uid, r.name, got.status, got.text, calls, r.status, r.calls)
		}
	}
	if got := ask(t, c, "POST", "/v1/admit", fmt.Sprintf(static, "r-4", "web")); got.text !=
		`{"error":"metadata.uid: r-4 belongs to default/other: use the pod's own UID"}` {
		t.Errorf("answer for another pod's UID = %d %s, want an error with its pod", got.status, got.text)
	}
	if os.Geteuid() != 0 {
		return // cannot be another user
	}
	d.take()
	for target, want := range map[string]int{"/v1/admit": 200, "/v1/admit?preempt=true": 403, "/v1/admit?preempt=maybe": 400, "/v1/admit/": 403} {
		as(t, 4001, 54321, nil, func() {
			status, text, err := rawAsk(path, "POST", target, pod("r-1"))
			if status != want || err != nil {
				t.Errorf("member, %s: got %d %s, %v; want %d", target, status, text, err, want)
			}
		})
	}
	if calls := fmt.Sprint(d.take()); calls != "[ask by member r-1 file]" {
		t.Errorf("calls for a member = %s, want one ask", calls)
	}
}

// An object that root puts takes precedence over a member's.
func TestRoleOfPut(t *testing.T) {
	for r, members := range map[role]bool{owner: false, member: true} {
		h := &handler{pods: podstore.New(), limit: time.Second, body: 1 << 20}
		c := context.WithValue(t.Context(), connKey{}, &conn{role: r})
		w := httptest.NewRecorder()
		if f := h.putPods(w, httptest.NewRequestWithContext(c, "PUT", "/v1/pods", strings.NewReader("["+pod("a")+"]"))); f != nil {
			t.Fatal(f.text)
		}
		s := h.pods.Snapshot()
		if len(s.Objects) != 1 || (len(s.Members) == 1) != members {
			t.Errorf("role %v: %d objects, of members: %v; want 1 object, of a member %v", r, len(s.Objects), s.Members, members)
		}
	}
}

// With a full store, a put of a member fails with an error that proposes a deletion, and admission
// still works for a pod of any size.
func TestMemberWithFullStore(t *testing.T) {
	h := &handler{pods: podstore.New(), admission: &decider{result: refusal}, limit: time.Minute, body: 64 << 20}
	large := func(uid string) string {
		return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","labels":{"a":"` + strings.Repeat("v", 1000<<10) + `"}},"spec":{"containers":[{}]}}`
	}
	for i := range 8 {
		if _, _, err := h.pods.Put(strings.NewReader("["+large(fmt.Sprint(i))+"]"), false, podstore.ByRoot); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"PUT", "/v1/pods", "[" + large("x") + "]", 507, "full: the agent holds 7.8Mi of pods, which leaves too little memory for these: delete some"},
		{"POST", "/v1/admit", large("x"), 200, refused},
		{"PUT", "/v1/pods", "[" + pod("x") + "]", 200, `"pods":1`},
	} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), connKey{}, &conn{role: member}), c.method, c.target, strings.NewReader(c.body))
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("answer to %s %s = %d %.300s, want %d %s", c.method, c.target, w.Code, w.Body, c.status, c.want)
		}
	}
}

// An admission error or a timeout is not a rejection.
func TestNoDecision(t *testing.T) {
	for name, c := range map[string]struct {
		admission Admission
		want      string
	}{
		"no admission": {nil, "admission not available yet: try again"},
		"no look yet":  {&decider{err: errors.New("no look yet")}, "no look yet: try again"},
		"timeout":      {&decider{wait: true}, "admission timed out, a started preemption continues: try again"},
	} {
		h := &handler{pods: podstore.New(), admission: c.admission, limit: time.Second}
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), connKey{}, &conn{role: owner}), "POST", "/v1/admit", strings.NewReader(pod("a")))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want := fmt.Sprintf("{\"error\":%q}\n", c.want)
		if w.Code != 503 || w.Body.String() != want || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: got %d %s, want 503 %s", name, w.Code, w.Body, want)
		}
	}
}

// A thousand clients that stop in the middle of a request are closed or get an error. They use a
// bounded number of goroutines, and root is served as usual.
func TestThousandSlowClients(t *testing.T) {
	slow := patient
	slow.request = 5 * time.Second // a body takes no longer
	d := &decider{result: admit.Result{Admit: true}}
	path, _ := start(t, Options{Admission: d, Group: group}, slow)
	half := fmt.Sprintf("POST /v1/admit HTTP/1.1\r\nHost: j\r\nContent-Length: %d\r\n\r\n%.20s", len(pod("a")), pod("a"))
	var clients []net.Conn
	begin := func() {
		for range 1000 {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			clients = append(clients, c)
			_, _ = io.WriteString(c, half) // there may be no place for it
		}
	}
	if os.Geteuid() == 0 {
		as(t, 4001, 54321, nil, begin)
		if got := ask(t, client(t, path), "POST", "/v1/admit", pod("a")); got.status != 200 {
			t.Errorf("answer to root with slow members = %d %s, want 200", got.status, got.text)
		}
	} else {
		begin()
	}
	if n := runtime.NumGoroutine(); n > 200 {
		t.Errorf("%d goroutines for a thousand clients, want at most 200", n)
	}
	answers := map[string]int{}
	for _, c := range clients {
		text, _ := io.ReadAll(c)
		line, _, _ := strings.Cut(string(text), "\r\n")
		answers[line]++
		_ = c.Close()
	}
	t.Logf("%v", answers)
	timeouts, refused := answers["HTTP/1.1 408 Request Timeout"], answers["HTTP/1.1 503 Service Unavailable"]
	if timeouts == 0 || timeouts+refused+answers[""] != len(clients) {
		t.Errorf("answers to slow clients = %v, want only 408, 503 or none", answers)
	}
	if got := ask(t, client(t, path), "POST", "/v1/admit", pod("a")); got.status != 200 {
		t.Errorf("answer after the slow clients = %d %s, want 200", got.status, got.text)
	}
	if calls := len(d.take()); calls > 2 {
		t.Errorf("%d admission calls, want at most 2", calls)
	}
}

// api.Client and the socket agree on requests and answers.
func TestClientAdmission(t *testing.T) {
	d := &decider{result: refusal}
	path, pods := start(t, Options{Admission: d}, patient)
	pods.SetRuntime(read.Index{"a": {PodRef: stats.PodReference{UID: "a", Namespace: "default", Name: "web"}}})
	c := api.New(api.Options{Socket: path, Limit: time.Hour})
	containers := v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Namespace: "default", Name: "web"}, Spec: containers}
	want := api.AdmitAnswer{UID: "a", Reason: refusal.Reason, Message: refusal.Message}
	for _, object := range []any{object, json.RawMessage(pod("a"))} {
		if got, err := c.Admit(t.Context(), object); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Admit = %+v, %v, want %+v", got, err, want)
		}
	}
	d.result = admit.Result{Admit: true}
	if got, err := c.Preempt(t.Context(), object); err != nil || !got.Admit || got.Reason != "" {
		t.Errorf("Preempt = %+v, %v, want admit", got, err)
	}
	if calls := fmt.Sprint(d.take()); calls != "[ask a ask a preempt a]" {
		t.Errorf("admission calls = %s, want two asks and one preempt", calls)
	}
	_, err := c.Preempt(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b", Namespace: "default", Name: "web"}, Spec: containers})
	var status *api.StatusError
	if !errors.As(err, &status) || status.Status != http.StatusNotFound {
		t.Errorf("Preempt for an unknown pod: error %v, want 404", err)
	}
}
