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

// decider answers as it is told, and keeps what it was asked.
type decider struct {
	result admit.Result
	err    error
	wait   bool // for the context's end

	mu    sync.Mutex
	asked []string // "ask UID source" or "preempt UID source"
}

func (d *decider) Ask(ctx context.Context, p *v1.Pod, by podstore.By) (admit.Result, error) {
	how := "ask"
	if by == podstore.ByMember {
		how = "a member asks"
	}
	return d.answer(ctx, how, p)
}

func (d *decider) Preempt(ctx context.Context, p *v1.Pod) (admit.Result, error) {
	return d.answer(ctx, "preempt", p)
}

func (d *decider) answer(ctx context.Context, how string, p *v1.Pod) (admit.Result, error) {
	d.mu.Lock()
	d.asked = append(d.asked, strings.TrimSpace(how+" "+string(p.UID)+" "+p.Annotations["kubernetes.io/config.source"]))
	d.mu.Unlock()
	if d.wait {
		<-ctx.Done()
		return admit.Result{}, ctx.Err()
	}
	return d.result, d.err
}

// all is what it was asked since the last time.
func (d *decider) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.asked = nil }()
	return d.asked
}

var refusal = admit.Result{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "}

const (
	yamlPod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: default\n  uid: u-1\nspec:\n  containers:\n  - name: c\n    image: x\n"
	refused = `"admit":false,"reason":"Evicted","message":"The node had condition: [MemoryPressure]. "`
)

// Each way to ask, and everything that can be wrong with it, in one answer that says where.
func TestAskingForAdmission(t *testing.T) {
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
		want               string // of an error, what it says
		asked              string
	}{
		{"JSON", "", pod("a"), asJSON, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"JSON that does not say so", "", " \n" + pod("a"), nil, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"YAML", "", yamlPod, asYAML, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"YAML that does not say so", "", "---\n" + yamlPod, nil, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"JSON called YAML", "", pod("a"), []string{"Content-Type", "text/yaml"}, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"as curl --data-binary has it", "", yamlPod, []string{"Content-Type", "application/x-www-form-urlencoded"}, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"not to preempt", "?preempt=false", pod("a"), nil, 200, `{"uid":"a",` + refused + `}`, "ask a"},
		{"fields of a newer API", "", named(`},"spec":{"shiny":1,"containers":[{"name":"c","lustre":{}}]}`), nil, 200,
			`{"uid":"a",` + refused + `,"unknownFields":["spec.shiny","spec.containers[0].lustre"]}`, "ask a"},
		{"a client that says it is static", "", named(`,"annotations":{"kubernetes.io/config.source":"file","kubernetes.io/config.mirror":"x"}},"spec":{"containers":[{"name":"c"}]}`), nil, 200,
			`{"uid":"a",` + refused + `}`, "ask a"},

		{"nothing", "", "", nil, 400, "there is no pod: the text is empty", ""},
		{"nothing as JSON", "", "", asJSON, 400, "the text ends too early", ""},
		{"no object", "", `7`, nil, 400, "the pod: want an object, got 7", ""},
		{"a list", "", `[` + pod("a") + `]`, asJSON, 400, "the pod: want an object, got a list", ""},
		{"no JSON", "", `{"metadata":`, nil, 400, "the text ends too early", ""},
		{"two pods", "", pod("a") + pod("b"), nil, 400, "more text after the pod", ""},
		{"documents without content", "", "---\n# Source: a.yaml\n---\n" + yamlPod + "---\n", nil, 200, `{"uid":"u-1",` + refused + `}`, "ask u-1"},
		{"two documents", "", yamlPod + "---\n" + yamlPod, nil, 400, "line 11: a second document: want one pod", ""},
		{"no YAML", "", "a: b: c", nil, 400, "not YAML: mapping values are not allowed in this context", ""},
		{"YAML called JSON", "", yamlPod, asJSON, 400, "invalid character 'a' looking for beginning of value", ""},
		{"an alias", "", "metadata: &m {uid: a}\nspec: *m\n", nil, 400, "line 2: an alias, *m: write out what it stands for", ""},
		{"a key twice in YAML", "", yamlPod + "kind: Pod\n", nil, 400, `not YAML: line 11: key "kind" already set in map`, ""},
		{"a key twice in JSON", "", named(`},"spec":{"nodeName":"a","nodeName":"b"}`), nil, 400, `duplicate field "spec.nodeName"`, ""},
		{"another kind", "", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n", nil, 400, `apiVersion "apps/v1", kind "Deployment": want v1, Pod`, ""},
		{"no UID", "", `{"metadata":{"namespace":"default","name":"web"}}`, nil, 400, "metadata.uid: missing", ""},
		{"no UID in YAML", "", strings.Replace(yamlPod, "  uid: u-1\n", "", 1), nil, 400, "metadata.uid: missing", ""},
		{"an odd UID", "", `{"metadata":{"uid":"../a","namespace":"default","name":"web"}}`, nil, 400, `metadata.uid: "../a": want letters, digits, - and the like`, ""},
		{"no namespace", "", `{"metadata":{"uid":"a","name":"web"}}`, nil, 400, "metadata.namespace: missing", ""},
		{"no name", "", `{"metadata":{"uid":"a","namespace":"default"}}`, nil, 400, "metadata.name: missing", ""},
		{"no container", "", named(`},"spec":{}`), nil, 400, "spec.containers: missing", ""},
		{"another word for spec", "", strings.Replace(yamlPod, "spec:", "specs:", 1), nil, 400, `spec.containers: missing; unknown field "specs"`, ""},
		{"an odd name", "", `{"metadata":{"uid":"a","namespace":"default","name":"Web_1"}}`, nil, 400, `metadata.name: "Web_1": a lowercase RFC 1123 subdomain must consist of`, ""},
		{"a text for a number", "", named(`},"spec":{"priority":"high"}`), nil, 400, "spec.priority: want a whole number of 32 bits, got \"high\"", ""},
		{"no quantity", "", named(`},"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"lots"}}}]}`), nil, 400,
			`spec.containers[0].resources.requests.memory: want a quantity, got "lots"`, ""},
		{"a negative quantity", "", named(`},"spec":{"overhead":{"cpu":"-1"}}`), nil, 400, `spec.overhead.cpu: quantity "-1" is negative`, ""},
		{"a quantity that takes hours", "", named(`},"spec":{"overhead":{"cpu":"1e-99990000"}}`), nil, 400, "spec.overhead.cpu: quantity", ""},
		{"what takes too much memory", "", named(`},"spec":{"containers":[` + strings.Repeat("{},", 40000) + `{}]}`), nil, 413, "decoded it takes more than 2097152 bytes", ""},
		{"too much YAML", "", yamlPod + "# " + strings.Repeat("x", podjson.MaxYAML), nil, 413, "a pod may have 262144 bytes of YAML: send it as JSON (kubectl ... -o json)", ""},
		{"too many values in YAML", "", yamlPod + "status: [" + strings.Repeat("[],", 9000) + "]\n", nil, 413, "a pod may have about 10000 values in YAML: send it as JSON (kubectl ... -o json)", ""},
		{"10 MB", "", named(`,"labels":{"a":"` + strings.Repeat("v", 10<<20) + `"}}`), nil, 413, "the body is larger than 1048576 bytes", ""},
		{"another type", "", pod("a"), []string{"Content-Type", "text/html"}, 415, `Content-Type "text/html": want application/json or application/yaml`, ""},
		{"no type", "", pod("a"), []string{"Content-Type", "/"}, 415, `Content-Type "/": want application/json or application/yaml`, ""},
		{"compressed", "", pod("a"), []string{"Content-Encoding", "gzip"}, 415, `Content-Encoding "gzip": send the text as it is`, ""},
		{"neither true nor false", "?preempt=1", pod("a"), nil, 400, `preempt="1": want true or false`, ""},
		{"both", "?preempt=true&preempt=false", pod("a"), nil, 400, `query: preempt is given more than once`, ""},
		{"another parameter", "?force=true", pod("a"), nil, 400, `query: this path takes only preempt`, ""},
		{"to preempt for a pod that nobody knows", "?preempt=true", pod("a"), nil, 404,
			`metadata.uid: neither the runtime nor a static manifest has a pod with the uid "a": nothing is preempted for it`, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			began := time.Now()
			got := ask(t, c, "POST", "/v1/admit"+r.target, r.body, r.header...)
			var said api.ErrorAnswer
			switch err := json.Unmarshal([]byte(got.text), &said); {
			case got.status != r.status || err != nil:
				t.Errorf("got %d %s, %v; want %d %s", got.status, got.text, err, r.status, r.want)
			case r.status == 200 && got.text != r.want, !strings.Contains(said.Error, r.want) && r.status != 200:
				t.Errorf("got %s, want %s", got.text, r.want)
			}
			if asked := strings.Join(d.all(), ","); asked != r.asked {
				t.Errorf("asked %q, want %q", asked, r.asked)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("took %v", d)
			}
		})
	}
	if got := ask(t, c, "GET", "/v1/admit", ""); got.status != 405 || got.header.Get("Allow") != "POST" {
		t.Errorf("GET: %d %s, Allow %q", got.status, got.text, got.header.Get("Allow"))
	}
}

// A body of any length is not read beyond its bound, and one that says that it is longer not at all.
func TestABodyThatDoesNotEnd(t *testing.T) {
	path, _ := start(t, Options{Admission: &decider{}}, patient)
	said := dial(t, path)
	send(t, said, "POST /v1/admit HTTP/1.1\r\nHost: j\r\nConnection: close\r\nContent-Length: 1048577\r\n\r\n")
	if text, _ := io.ReadAll(said); !strings.HasPrefix(string(text), "HTTP/1.1 413") {
		t.Errorf("a length that is said: %.300s", text)
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
		t.Errorf("%.300s", text)
	}
	c.Close()
	if n := <-sent; n > 4<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// Only root preempts, for a pod that the runtime or a manifest has: of that, they say where it is from, and not the client.
func TestPreempting(t *testing.T) {
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
		asked     string
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
		if asked := strings.Join(d.all(), ","); got.status != r.status || asked != r.asked {
			t.Errorf("%s %s: got %d %s, asked %q; want %d, %q", r.uid, r.name, got.status, got.text, asked, r.status, r.asked)
		}
	}
	if got := ask(t, c, "POST", "/v1/admit", fmt.Sprintf(static, "r-4", "web")); got.text !=
		`{"error":"metadata.uid: r-4 is that of default/other: give a pod its own UID"}` {
		t.Errorf("another pod's UID: %d %s", got.status, got.text)
	}
	if os.Geteuid() != 0 {
		return // cannot be another user
	}
	d.all()
	for target, want := range map[string]int{"/v1/admit": 200, "/v1/admit?preempt=true": 403, "/v1/admit?preempt=maybe": 400, "/v1/admit/": 403} {
		as(t, 4001, 54321, nil, func() {
			status, text, err := rawAsk(path, "POST", target, pod("r-1"))
			if status != want || err != nil {
				t.Errorf("member, %s: got %d %s, %v; want %d", target, status, text, err, want)
			}
		})
	}
	if asked := fmt.Sprint(d.all()); asked != "[a member asks r-1 file]" {
		t.Errorf("a member's questions: %s", asked)
	}
}

// What root puts counts for more than what a member of the group does.
func TestWhoPut(t *testing.T) {
	for r, members := range map[role]bool{owner: false, member: true} {
		h := &handler{pods: podstore.New(), limit: time.Second, body: 1 << 20}
		c := context.WithValue(t.Context(), connKey{}, &conn{role: r})
		w := httptest.NewRecorder()
		if f := h.putPods(w, httptest.NewRequestWithContext(c, "PUT", "/v1/pods", strings.NewReader("["+pod("a")+"]"))); f != nil {
			t.Fatal(f.text)
		}
		s := h.pods.Snapshot()
		if len(s.Objects) != 1 || (len(s.Members) == 1) != members {
			t.Errorf("role %v: %d objects, a member's: %v", r, len(s.Objects), s.Members)
		}
	}
}

// Beside as much as is known at most a member is told of a pod that does not fit what to do, and gets an answer about one of any size.
func TestAMemberBesideAFullStore(t *testing.T) {
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
		{"PUT", "/v1/pods", "[" + large("x") + "]", 507, "full: the agent has 7.8 MiB of pods, and no room for so much that is new beside them: delete some"},
		{"POST", "/v1/admit", large("x"), 200, refused},
		{"PUT", "/v1/pods", "[" + pod("x") + "]", 200, `"pods":1`},
	} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), connKey{}, &conn{role: member}), c.method, c.target, strings.NewReader(c.body))
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: got %d %.300s, want %d %s", c.method, c.target, w.Code, w.Body, c.status, c.want)
		}
	}
}

// Who decides may be unable to, or take too long. Neither is a refusal.
func TestNoDecision(t *testing.T) {
	for name, c := range map[string]struct {
		admission Admission
		want      string
	}{
		"nobody decides": {nil, "the agent cannot decide on pods yet: try again"},
		"no look yet":    {&decider{err: errors.New("the node was not looked at")}, "the node was not looked at: try again"},
		"too long":       {&decider{wait: true}, "it took too long; what was begun goes on: try again"},
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

// A thousand clients that say half of what they want to are cut off or told so. Meanwhile they take a bounded number of goroutines, and root
// asks as if they were not there.
func TestAThousandSlowClients(t *testing.T) {
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
			t.Errorf("root meanwhile: %d %s", got.status, got.text)
		}
	} else {
		begin()
	}
	if n := runtime.NumGoroutine(); n > 200 {
		t.Errorf("%d goroutines", n)
	}
	answers := map[string]int{}
	for _, c := range clients {
		text, _ := io.ReadAll(c)
		line, _, _ := strings.Cut(string(text), "\r\n")
		answers[line]++
		_ = c.Close()
	}
	t.Logf("%v", answers)
	late, refused := answers["HTTP/1.1 408 Request Timeout"], answers["HTTP/1.1 503 Service Unavailable"]
	if late == 0 || late+refused+answers[""] != len(clients) {
		t.Errorf("%v", answers)
	}
	if got := ask(t, client(t, path), "POST", "/v1/admit", pod("a")); got.status != 200 {
		t.Errorf("then: %d %s", got.status, got.text)
	}
	if asked := len(d.all()); asked > 2 {
		t.Errorf("asked %d times", asked)
	}
}

// What api.Client asks, the socket answers.
func TestTheClientAsksForAdmission(t *testing.T) {
	d := &decider{result: refusal}
	path, pods := start(t, Options{Admission: d}, patient)
	pods.SetRuntime(read.Index{"a": {PodRef: stats.PodReference{UID: "a", Namespace: "default", Name: "web"}}})
	c := api.New(api.Options{Socket: path, Limit: time.Hour})
	containers := v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Namespace: "default", Name: "web"}, Spec: containers}
	want := api.AdmitAnswer{UID: "a", Reason: refusal.Reason, Message: refusal.Message}
	for _, asking := range []any{object, json.RawMessage(pod("a"))} {
		if got, err := c.Admit(t.Context(), asking); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	d.result = admit.Result{Admit: true}
	if got, err := c.Preempt(t.Context(), object); err != nil || !got.Admit || got.Reason != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if asked := fmt.Sprint(d.all()); asked != "[ask a ask a preempt a]" {
		t.Errorf("asked %s", asked)
	}
	_, err := c.Preempt(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b", Namespace: "default", Name: "web"}, Spec: containers})
	var is *api.StatusError
	if !errors.As(err, &is) || is.Status != http.StatusNotFound {
		t.Errorf("a pod that nobody knows: %v", err)
	}
}
