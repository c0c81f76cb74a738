package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/stats"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// group is a number that no group has.
const group = "54321"

// short returns a directory with a name short enough for a socket, that other users may enter.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "j")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// patient are limits that no test reaches.
var patient = limits{time.Hour, time.Hour, time.Hour, time.Hour, maxBody, time.Hour}

func start(t *testing.T, o Options, l limits) (path string, pods *podstore.Store) {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(short(t), "run", "s.sock")
	}
	o.Pods = podstore.New()
	s, err := listen(o, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(o.Path); err == nil {
			t.Error("socket exists after Close")
		}
	})
	return o.Path, o.Pods
}

// client returns a client of a socket. Its connections are closed when the test ends.
func client(t *testing.T, path string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type answer struct {
	status int
	text   string
	header http.Header
}

func ask(t *testing.T, c *http.Client, method, target, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, "http://jettison"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("send request %s %s to the socket: %v", method, target, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read the answer to %s %s: %v", method, target, err)
	}
	return answer{res.StatusCode, strings.TrimSuffix(string(text), "\n"), res.Header}
}

func pod(uid string) string {
	return fmt.Sprintf(`{"metadata":{"uid":%q,"namespace":"default","name":"web"},"spec":{"containers":[{"name":"c"}]}}`, uid)
}

// known is the end of an answer 404.
const known = ": the paths are /v1/admit, /v1/outlook, /v1/pods, /v1/pods/{uid}, /v1/state"

func TestRequests(t *testing.T) {
	path, pods := start(t, Options{State: func() any { return map[string]int{"evictions": 3} }}, patient)
	c := client(t, path)
	fail := func(text string) string {
		out, err := json.Marshal(map[string]string{"error": text})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, r := range []struct {
		method, target, body string
		header               []string
		status               int
		want                 string
	}{
		{"PUT", "/v1/pods", `[` + pod("a") + `,` + pod("b") + `]`, nil, 200, `{"pods":2,"version":1}`},
		{"PUT", "/v1/pods", `{"kind":"PodList","apiVersion":"v1","items":[` + pod("c") + `]}`, []string{"Content-Type", "application/json; charset=utf-8"}, 200, `{"pods":1,"version":2}`},
		{"PUT", "/v1/pods?replace=false", `[` + pod("c") + `]`, nil, 200, `{"pods":1,"version":2}`},
		{"DELETE", "/v1/pods/a", ``, nil, 204, ``},
		{"DELETE", "/v1/pods/a", ``, nil, 404, fail(`no client provided a pod with the uid "a"`)},
		{"DELETE", "/v1/pods/%62", ``, nil, 204, ``},
		{"DELETE", "/v1/pods/a%2Fb", ``, nil, 404, fail(`no client provided a pod with the uid "a/b"`)},
		{"PUT", "/v1/pods?replace=true", `[` + pod("d") + `]`, nil, 200, `{"pods":1,"version":5}`},
		{"GET", "/v1/state", ``, nil, 200, `{"evictions":3}`},
		{"HEAD", "/v1/state", ``, nil, 200, ``},

		{"PUT", "/v1/pods", ``, nil, 400, fail(`incomplete text`)},
		{"PUT", "/v1/pods", `[{}]`, nil, 400, fail(`pods[0]: metadata.uid: missing`)},
		{"PUT", "/v1/pods", `[` + pod("x") + `,{"metadata":{"uid":"y","namespace":"a","name":"b"},"spec":{"overhead":{"cpu":"1e-99990000"}}}]`, nil, 400,
			fail(`pods[1]: spec.overhead.cpu: quantity "1e-99990000": the exponent is not between -1000 and 1000`)},
		{"PUT", "/v1/pods?replace=maybe", `[]`, nil, 400, fail(`replace="maybe": want true or false`)},
		{"PUT", "/v1/pods?replace=true&replace=false", `[]`, nil, 400, fail(`query: replace is given more than once`)},
		{"PUT", "/v1/pods?Replace=true", `[]`, nil, 400, fail(`query: this path has only replace`)},
		{"DELETE", "/v1/pods/d?force=true", ``, nil, 400, fail(`query: this path has no parameters`)},
		{"GET", "/v1/state?%zz", ``, nil, 400, fail(`query: invalid URL escape "%zz"`)},
		{"PUT", "/v1/pods", `[]`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, fail(`Content-Type "application/x-www-form-urlencoded": want application/json`)},
		{"PUT", "/v1/pods", `[]`, []string{"Content-Encoding", "gzip"}, 415, fail(`Content-Encoding "gzip": send the text uncompressed`)},
		{"POST", "/v1/pods", `[]`, nil, 405, fail(`method "POST" not allowed: use PUT`)},
		{"DELETE", "/v1/state", ``, nil, 405, fail(`method "DELETE" not allowed: use GET or HEAD`)},
		{"GET", "/v1/pods/d", ``, nil, 405, fail(`method "GET" not allowed: use DELETE`)},
		{"GET", "/", ``, nil, 404, fail(`no path "/"` + known)},
		{"DELETE", "/v1/pods/", ``, nil, 404, fail(`no path "/v1/pods/"` + known)},
		{"DELETE", "/v1/pods/a/b", ``, nil, 404, fail(`no path "/v1/pods/a/b"` + known)},
		{"PUT", "/v1/pods", `[{"metadata":{"name":"` + strings.Repeat("a", 1<<20) + `"}}]`, nil, 413, fail(`pods[0]: too large: more than 1048576 bytes of JSON for one pod`)},
	} {
		got := ask(t, c, r.method, r.target, r.body, r.header...)
		if got.status != r.status || got.text != r.want {
			t.Errorf("answer to %s %s %.80s:\n got %d %s\nwant %d %s", r.method, r.target, r.body, got.status, got.text, r.status, r.want)
		}
		if r.status != 204 && got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: Content-Type = %q, want application/json", r.method, r.target, got.header.Get("Content-Type"))
		}
	}
	if got := pods.Snapshot(); len(got.Pods) != 1 || got.Pods["d"] == nil {
		t.Errorf("known pods = %v, want only d", got.Pods)
	}
	if got := ask(t, c, "PATCH", "/v1/pods", ""); got.header.Get("Allow") != "PUT" {
		t.Errorf("Allow header of PATCH = %q, want PUT", got.header.Get("Allow"))
	}
}

// The socket and api.Client agree on requests, answers and errors.
func TestClient(t *testing.T) {
	var state any
	path, pods := start(t, Options{State: func() any { return state }}, patient)
	c := api.New(api.Options{Socket: path, Limit: time.Hour})
	ctx := t.Context()
	refused := func(name string, err error, status int, text string) {
		t.Helper()
		var is *api.StatusError
		if !errors.As(err, &is) || is.Status != status || is.Text != text {
			t.Errorf("%s: error %v, want %d %s", name, err, status, text)
		}
	}
	_, err := c.State(ctx)
	refused("no state", err, 503, "no state yet, or the loop hangs: try again")
	state = &api.State{Version: "v1", Pods: api.PodCount{Clients: 2}}
	if s, err := c.State(ctx); err != nil || s.Version != "v1" || s.Pods.Clients != 2 {
		t.Errorf("State = %+v, %v, want version v1 and 2 clients", s, err)
	}
	object := func(uid string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: uid}}
	}
	for _, put := range []struct {
		do   func(context.Context, any) (api.PutAnswer, error)
		pods any
		want api.PutAnswer
	}{
		{c.PutPods, []*v1.Pod{object("a"), object("b")}, api.PutAnswer{Pods: 2, Version: 1}},
		{c.PutPods, &v1.PodList{Items: []v1.Pod{*object("b")}}, api.PutAnswer{Pods: 1, Version: 1}},
		{c.ReplacePods, json.RawMessage("[" + pod("c.d") + "]"), api.PutAnswer{Pods: 1, Version: 2}},
	} {
		if answer, err := put.do(ctx, put.pods); err != nil || !reflect.DeepEqual(answer, put.want) {
			t.Errorf("put of %v = %+v, %v, want %+v", put.pods, answer, err, put.want)
		}
	}
	pods.SetRuntime(read.Index{"a": {PodRef: stats.PodReference{UID: "a", Namespace: "default", Name: "other"}}})
	answer, err := c.ReplacePods(ctx, []*v1.Pod{object("a"), object("c.d")})
	rejected := []api.RefusedPod{{
		Object:  stats.PodReference{UID: "a", Namespace: "default", Name: "a"},
		Runtime: stats.PodReference{UID: "a", Namespace: "default", Name: "other"},
	}}
	if err != nil || answer.Pods != 2 || !reflect.DeepEqual(answer.Refused, rejected) {
		t.Errorf("put of an object of another pod = %+v, %v, want rejected %+v", answer, err, rejected)
	}
	_, err = c.PutPods(ctx, []*v1.Pod{{}})
	refused("no uid", err, 400, "pods[0]: metadata.uid: missing")
	if err := c.DeletePod(ctx, "c.d"); err != nil || len(pods.Snapshot().Pods) != 0 {
		t.Errorf("DeletePod: error %v, known pods %v; want none", err, pods.Snapshot().Pods)
	}
	refused("second delete", c.DeletePod(ctx, "c/d e"), 404, `no client provided a pod with the uid "c/d e"`)
	if answer, err := c.ReplacePods(ctx, []*v1.Pod(nil)); err != nil || answer.Pods != 0 {
		t.Errorf("replace with no pods = %+v, %v, want 0 pods", answer, err)
	}
}

// The body is bounded with and without a Content-Length. It is decoded while it is read, not
// buffered.
func TestLargeBody(t *testing.T) {
	// The server answers and closes before all is sent: the answer is read in parallel.
	put := func(limit int64, header string, body func(io.Writer)) (int, string) {
		l := patient
		l.body = limit
		path, _ := start(t, Options{}, l)
		c := dial(t, path)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			if _, err := io.WriteString(c, "PUT /v1/pods HTTP/1.1\r\nHost: j\r\n"+header+"\r\n\r\n"); err == nil {
				body(c)
			}
		}()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		c.Close()
		<-sent
		return res.StatusCode, string(text)
	}
	status, text := put(maxBody, fmt.Sprint("Content-Length: ", maxBody+1), func(w io.Writer) { _, _ = io.WriteString(w, strings.Repeat(" ", maxBody+1)) })
	if status != 413 || text != "{\"error\":\"the body is larger than 67108864 bytes\"}\n" {
		t.Errorf("answer to a large Content-Length = %d %s, want 413", status, text)
	}
	// Pods that are small in memory, so that the length of the text exceeds its limit.
	one := `{"metadata":{"uid":"u%07d","namespace":"default","name":"web"},"spec":{"containers":[{"name":"c","command":["` + strings.Repeat("x", 40<<10) + `"]}]}},`
	status, text = put(1<<20, "Transfer-Encoding: chunked", func(w io.Writer) {
		w = httputil.NewChunkedWriter(w)
		_, err := io.WriteString(w, "[")
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(w, one, i)
		}
	})
	if status != 413 || text != "{\"error\":\"the body is larger than 1048576 bytes\"}\n" {
		t.Errorf("answer to a chunked body = %d %s, want 413", status, text)
	}
}

func TestNoState(t *testing.T) {
	for _, o := range []Options{{}, {State: func() any { return nil }}} {
		path, _ := start(t, o, patient)
		if got := ask(t, client(t, path), "GET", "/v1/state", ""); got.status != 503 || got.text != `{"error":"no state yet, or the loop hangs: try again"}` || got.header.Get("Retry-After") == "" {
			t.Errorf("answer without a state = %d %s, want 503 with Retry-After", got.status, got.text)
		}
	}
	path, _ := start(t, Options{State: func() any { return func() {} }}, patient)
	if got := ask(t, client(t, path), "GET", "/v1/state", ""); got.status != 500 {
		t.Errorf("answer with a state that JSON cannot encode = %d %s, want 500", got.status, got.text)
	}
}

// as runs f as another user, in a separate thread that ends with it: the kernel takes a
// connection's credentials from the thread that connects. Only root can become another user;
// TestRoles tests the rules themselves.
func as(t *testing.T, uid, gid int, groups []uint32, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends
		if len(groups) == 0 {
			groups = []uint32{uint32(gid)}
		}
		if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); e != 0 {
			t.Errorf("setgroups of the thread: %v", e)
			return
		}
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			id := uintptr(gid)
			if call == unix.SYS_SETRESUID {
				id = uintptr(uid)
			}
			if _, _, e := syscall.RawSyscall(call, id, id, id); e != 0 {
				t.Errorf("set the thread's ID to %d: %v", id, e)
				return
			}
		}
		f()
	}()
	<-done
}

// rawAsk sends a request from the calling thread.
func rawAsk(path, method, target, body string) (status int, text string, err error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: j\r\nContent-Length: %d\r\n\r\n%s", method, target, len(body), body); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, strings.TrimSpace(string(all)), err
}

// The kernel's credentials of the connecting process determine the role.
func TestRolesOverTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		path, _ := start(t, Options{}, patient)
		if status, text, err := rawAsk(path, "PUT", "/v1/pods", "[]"); status != 200 {
			t.Errorf("answer to the agent's own user = %d %s %v, want 200", status, text, err)
		}
		return
	}
	path, _ := start(t, Options{Group: group, State: func() any { return 1 }}, patient)
	many := make([]uint32, 0, 300)
	for i := range 300 {
		many = append(many, uint32(54022+i)) // 54321 is the last one
	}
	for _, p := range []struct {
		name     string
		uid, gid int
		groups   []uint32
		method   string
		target   string
		status   int // 0: the kernel refuses the connection
	}{
		{"root", 0, 0, nil, "PUT", "/v1/pods", 200},
		{"root", 0, 0, nil, "POST", "/v1/other", 404},
		{"member", 4001, 54321, nil, "PUT", "/v1/pods", 200},
		{"member", 4001, 54321, nil, "DELETE", "/v1/pods/x", 404},
		{"member", 4001, 54321, nil, "GET", "/v1/state", 200},
		{"member", 4001, 54321, nil, "GET", "/v1/other", 404},
		{"member", 4001, 54321, nil, "POST", "/v1/pods", 403},
		{"member", 4001, 54321, nil, "PUT", "/v1/state", 403},
		{"member", 4001, 54321, nil, "DELETE", "/v1/podsx", 403},
		{"member by a supplementary group", 4001, 4001, []uint32{1, 54321}, "PUT", "/v1/pods", 200},
		{"member of many groups", 4001, 4001, many, "PUT", "/v1/pods", 200},
		{"stranger", 4001, 4001, nil, "GET", "/v1/state", 0},
	} {
		as(t, p.uid, p.gid, p.groups, func() {
			status, text, err := rawAsk(path, p.method, p.target, "[]")
			if p.status == 0 && !errors.Is(err, os.ErrPermission) || status != p.status {
				t.Errorf("%s: %s %s: got %d %s, error %v; want %d", p.name, p.method, p.target, status, text, err, p.status)
			}
		})
	}
	// A user that connects although the mode should prevent it.
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	as(t, 4002, 4002, nil, func() {
		status, text, err := rawAsk(path, "GET", "/v1/state", "")
		if status != 403 || !strings.HasPrefix(text, `{"error":"forbidden: only root`) {
			t.Errorf("answer to a stranger = %d %s, error %v; want 403", status, text, err)
		}
	})
}

func TestRoles(t *testing.T) {
	own := uint32(os.Geteuid())
	for _, c := range []struct {
		p    peer
		gid  int
		want role
	}{
		{peer{uid: 0, gid: 9}, -1, owner},
		{peer{uid: own, gid: 9}, 7, owner},
		{peer{uid: own + 1, gid: 7}, 7, member},
		{peer{uid: own + 1, gid: 9, groups: []uint32{8, 7}}, 7, member},
		{peer{uid: own + 1, gid: 9, groups: []uint32{8}}, 7, stranger},
		{peer{uid: own + 1, gid: 9, groups: []uint32{1<<32 - 1}}, -1, stranger},
		{peer{uid: own + 1, gid: 1<<32 - 1}, -1, stranger},
	} {
		if got := c.p.role(c.gid); got != c.want {
			t.Errorf("%+v of group %d: role %d, want %d", c.p, c.gid, got, c.want)
		}
	}
}
