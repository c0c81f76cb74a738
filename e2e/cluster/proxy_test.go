package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"jettison/api"
)

// proxy is a proxy between a bridge and the API server. It delays requests, answers them itself,
// and drops watches. All other answers are the API server's.
type proxy struct {
	config *rest.Config // of a bridge that connects to the proxy

	mu      sync.Mutex
	answers map[string][]answer // answers to the next requests, by the names below
	asked   map[string]int
	watches map[int]context.CancelFunc
	served  int
}

// Names of a bridge's requests.
const (
	patchesOf = "patch "       // and a pod's name
	getsOf    = "get "         // and a pod's name
	events    = "create event" // any
	watches   = "watch"        // of pods
)

// answer describes the answer to one request.
type answer struct {
	code       int           // 0: the API server's own, after release is closed
	retryAfter int           // seconds; 0: not sent
	arrived    chan struct{} // closed when the request arrives; nil: not observed
	release    chan struct{} // nil with code 0: hangs until the bridge gives up
}

// startProxy starts a proxy between a node's bridge and the API server.
func startProxy(t *testing.T, c *Cluster, node string) *proxy {
	t.Helper()
	config := c.Bearer(c.NodeToken(bridgeNamespace, bridgeAccount, node))
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1, // watches are passed on immediately
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // the connection breaks off
	}
	b := &proxy{answers: map[string][]answer{}, asked: map[string]int{}, watches: map[int]context.CancelFunc{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, forward) }))
	p, err := c.ca.server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{serving}} // a bridge sends no token over plain HTTP
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	b.config = rest.CopyConfig(config)
	b.config.Host = s.URL
	return b
}

var statusOfPod = regexp.MustCompile(`^/api/v1/namespaces/default/pods/([^/]+)/status$`)

// requestName returns the name of a request.
func requestName(r *http.Request) string {
	if m := statusOfPod.FindStringSubmatch(r.URL.Path); m != nil && r.Method == http.MethodPatch {
		return patchesOf + m[1]
	}
	if name, one := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"); one && r.Method == http.MethodGet {
		return getsOf + name
	}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		return events
	case r.URL.Query().Get("watch") != "":
		return watches
	}
	return "other"
}

func (b *proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	asks := requestName(r)
	b.mu.Lock()
	b.asked[asks]++
	var a answer
	if all := b.answers[asks]; len(all) > 0 {
		a, b.answers[asks] = all[0], all[1:]
	} else {
		a.release = passes
	}
	b.mu.Unlock()
	if a.arrived != nil {
		close(a.arrived)
	}
	if a.code != 0 {
		refuse(w, a)
		return
	}
	select {
	case <-a.release:
	case <-clientGone(r): // a nil release: the request hangs
		return
	}
	if asks == watches {
		ctx, cancel := context.WithCancel(r.Context())
		defer b.watched(cancel)()
		r = r.WithContext(ctx)
	}
	forward.ServeHTTP(w, r)
}

// clientGone is closed when the client has closed the connection, which a server notices after reading
// the whole request.
func clientGone(r *http.Request) <-chan struct{} {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r.Context().Done()
}

// passes is the release of requests that are not delayed.
var passes = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// watched registers a watch for drop until it has ended.
func (b *proxy) watched(cancel context.CancelFunc) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.served++
	id := b.served
	b.watches[id] = cancel
	return func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watches, id)
	}
}

// drop closes all watches.
func (b *proxy) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, cancel := range b.watches {
		cancel()
	}
}

// next sets the answers to the next requests of a kind.
func (b *proxy) next(asks string, answers ...answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[asks] = append(b.answers[asks], answers...)
}

// times returns the number of requests of a kind.
func (b *proxy) times(asks string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[asks]
}

// refuse answers with an error as an API server does.
func refuse(w http.ResponseWriter, a answer) {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	}
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(a.code),
		Reason: reasons[a.code], Message: "answered by the test",
	})
}

// A pod is deleted, replaced under the same name, ends by itself, or changes while the patch that
// sets it to Failed is in flight. The bridge fails only the victim, and only if it still runs. It
// reports each outcome once.
func TestAPodThatChangesWhileItsPatchIsInFlight(t *testing.T) {
	c, a := Start(t, Options{}), startFakeAgent(t)
	installBridge(t, c)
	b := startProxy(t, c, "n1")
	runBridgeBy(t, a, "n1", b.config)
	pods := c.Client.CoreV1().Pods("default")
	type change struct {
		name string
		then func(ctx context.Context, p *v1.Pod) error
		want string // phase and reason of what has the name afterwards; empty: nothing has
	}
	for _, one := range []change{
		{"deleted", func(ctx context.Context, p *v1.Pod) error {
			return pods.Delete(ctx, p.Name, *metav1.NewDeleteOptions(0))
		}, ""},
		{"replaced", func(ctx context.Context, p *v1.Pod) error {
			err := pods.Delete(ctx, p.Name, *metav1.NewDeleteOptions(0))
			if err == nil {
				_, err = makeRunningPod(ctx, c, p.Name, "n1", nil)
			}
			return err
		}, "Running"},
		{"deleting", func(ctx context.Context, p *v1.Pod) error {
			return pods.Delete(ctx, p.Name, *metav1.NewDeleteOptions(30))
		}, "Running"},
		{"succeeded", func(ctx context.Context, p *v1.Pod) error {
			p.Status.Phase = v1.PodSucceeded
			_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}, "Succeeded"},
		{"failed", func(ctx context.Context, p *v1.Pod) error {
			p.Status.Phase, p.Status.Reason = v1.PodFailed, "DeadlineExceeded"
			_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}, "Failed DeadlineExceeded"},
		{"relabelled", func(ctx context.Context, p *v1.Pod) error {
			p.Labels["more"] = "so"
			_, err := pods.Update(ctx, p, metav1.UpdateOptions{})
			return err
		}, "Failed Evicted"},
		{"reported", func(ctx context.Context, p *v1.Pod) error { // its kubelet reports that the container died
			p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}
			_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}, "Failed Evicted"},
	} {
		test := func(t *testing.T, name string, waited bool) {
			p := runningPod(t, c, name, "n1", nil)
			c.Eventually(startDeadline, "the bridge knows the pod", a.hasPod(p))
			held := answer{arrived: make(chan struct{}), release: make(chan struct{})}
			b.next(patchesOf+p.Name, held)
			r := a.reportEvicted(p)
			select {
			case <-held.arrived:
			case <-time.After(startDeadline):
				t.Fatal("the bridge has sent no patch")
			}
			if !waited { // the bridge continues with other pods if it can read this one
				c.Eventually(startDeadline, "the bridge asks whether others would be answered", func(context.Context) error {
					if b.times(getsOf+p.Name) == 0 {
						return errors.New("the pod is still in the retry queue")
					}
					return nil
				})
				other := runningPod(t, c, name+"-other", "n1", nil)
				c.Eventually(startDeadline, "the bridge knows the other pod", a.hasPod(other))
				c.Eventually(startDeadline, "the other is failed", evicted(c, a.reportEvicted(other)))
			}
			if err := one.then(t.Context(), p.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			var before string
			if is, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{}); err == nil {
				before = is.ResourceVersion
			}
			close(held.release)
			c.hasEvents(r, "Evicted", "EvictionThresholdMet")
			is, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
			switch {
			case one.want == "":
				if err == nil {
					t.Errorf("a pod exists under the name, want none: %+v", is)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(is.Status.Phase) + " " + is.Status.Reason); got != one.want {
				t.Errorf("phase and reason = %q, want %q", got, one.want)
			}
			if ours := one.want == "Failed Evicted"; ours != (is.ResourceVersion != before) || ours != (is.Annotations[api.AnnotationEvicted] == r.ID) {
				t.Errorf("resourceVersion = %s, want that before: %s; annotations %v", is.ResourceVersion, before, is.Annotations)
			}
		}
		t.Run(one.name, func(t *testing.T) { test(t, one.name, true) })
		t.Run(one.name+" with an empty queue", func(t *testing.T) { test(t, one.name+"-late", false) })
	}
}

// hasEvents waits until the API server has exactly these events of a record.
func (c *Cluster) hasEvents(r api.Record, reasons ...string) {
	c.t.Helper()
	c.Eventually(startDeadline, "the events of "+r.Pod.Name+" are there", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var is []string
		for _, e := range list.Items {
			if strings.HasSuffix(e.Name, strings.ToLower(r.ID)) {
				is = append(is, e.Reason)
			}
		}
		if slices.Sort(is); !slices.Equal(is, reasons) {
			return fmt.Errorf("events of the record = %v", is)
		}
		return nil
	})
}

// The API server answers 409, 410, 429, 500, 503, not at all, or drops the watch, while a bridge
// reports a pod's eviction. The bridge logs the failure and reports the eviction once.
func TestWhatAnAPIServerMayAnswer(t *testing.T) {
	c, a := Start(t, Options{}), startFakeAgent(t)
	installBridge(t, c)
	b := startProxy(t, c, "n1")
	bridge := runBridgeBy(t, a, "n1", b.config)
	for _, one := range []struct {
		name   string
		status []answer // of the patch of the pod's status
		event  []answer
		watch  []answer // of the next watch of pods, after the present one was dropped
		said   string   // by the log
	}{
		{name: "conflict", status: []answer{{code: 409}, {code: 409}}},
		{name: "gone", watch: []answer{{code: 410}}},
		{name: "throttled", status: []answer{{code: 429, retryAfter: 1}}, said: "pod status write rejected"},
		{name: "defect", status: []answer{{code: 500}, {code: 500}}, said: "pod status request failed"},
		{name: "unavailable", status: []answer{{code: 503}}, said: "pod status write rejected"},
		{name: "hangs", status: []answer{{}}, said: "pod status write timed out"},
		{name: "forbidden", status: []answer{{code: 403}}, said: "pod status request denied"},
		{name: "eventthrottled", event: []answer{{code: 429, retryAfter: 1}}, said: "API server accepts no events"},
		{name: "eventdefect", event: []answer{{code: 500}, {code: 500}}, said: "event rejected"},
		{name: "eventhangs", event: []answer{{}}, said: "event timed out"},
		{name: "watchdefect", watch: []answer{{code: 500}, {code: 503}}, said: "pod watch failed"},
		{name: "watchthrottled", watch: []answer{{code: 429, retryAfter: 1}}},
	} {
		t.Run(one.name, func(t *testing.T) {
			from := size(t, bridge.log)
			b.next(patchesOf+one.name, one.status...)
			b.next(events, one.event...)
			if one.watch != nil {
				before := b.times(watches)
				b.next(watches, one.watch...)
				b.drop()
				c.Eventually(startDeadline, "the bridge watches again", func(context.Context) error {
					if n := b.times(watches); n <= before+len(one.watch) {
						return fmt.Errorf("bridge sent only %d requests since then", n-before)
					}
					return nil
				})
			}
			p := runningPod(t, c, one.name, "n1", nil)
			c.Eventually(startDeadline, "the bridge knows the pod", a.hasPod(p))
			r := a.reportEvicted(p)
			c.Eventually(startDeadline, one.name+" is told", evicted(c, r))
			// One more if the pod changed after the bridge read it, which the API server rejects.
			if n, want := b.times(patchesOf+one.name), 1+len(one.status); n < want || n > want+1 {
				t.Errorf("patches of the pod's status = %d, want %d", n, want)
			}
			log, err := os.ReadFile(bridge.log)
			if err != nil {
				t.Fatal(err)
			}
			if said := string(log[from:]); !strings.Contains(said, one.said) {
				t.Errorf("the log of the bridge lacks %q:\n%s", one.said, said)
			}
		})
	}
}

// size of a file in bytes.
func size(t *testing.T, path string) int64 {
	t.Helper()
	is, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return is.Size()
}
