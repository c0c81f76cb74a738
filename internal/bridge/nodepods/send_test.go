package nodepods

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
)

// recordingAgent is an agent that records requests.
type recordingAgent struct {
	mu      sync.Mutex
	asked   []string
	version uint64
	fail    error
}

func (l *recordingAgent) record(what string, pods any) (api.PutAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pods.([]*v1.Pod) {
		what += " " + string(p.UID)
	}
	l.asked = append(l.asked, what)
	if l.fail != nil {
		return api.PutAnswer{}, l.fail
	}
	l.version++
	return api.PutAnswer{Version: l.version}, nil
}

func (l *recordingAgent) ReplacePods(_ context.Context, pods any) (api.PutAnswer, error) {
	return l.record("replace", pods)
}

func (l *recordingAgent) PutPods(_ context.Context, pods any) (api.PutAnswer, error) {
	return l.record("put", pods)
}

func (l *recordingAgent) DeletePod(_ context.Context, uid string) error {
	_, _ = l.record("delete "+uid, []*v1.Pod(nil))
	return &api.StatusError{Status: http.StatusNotFound}
}

// requests returns the requests since the last call.
func (l *recordingAgent) requests() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.asked
	l.asked = nil
	return out
}

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p-" + uid, UID: types.UID(uid)}}
}

func runSender(t *testing.T, do func(s *store, l *recordingAgent, again chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, l, again := newStore(nil), &recordingAgent{}, make(chan struct{}, 1)
		var text strings.Builder
		told := sender{agent: l, store: s, log: slog.New(slog.NewTextHandler(&text, nil)), resync: again}
		var beside sync.WaitGroup
		beside.Go(func() { told.run(ctx) })
		do(s, l, again)
		cancel()
		beside.Wait()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// All pods are sent once they are known, then changes in batches, and no mirror pods.
func TestPodsAreSent(t *testing.T) {
	runSender(t, func(s *store, l *recordingAgent, _ chan struct{}) {
		must(t, s.Add(pod("early"))) // a streaming list is not complete yet
		time.Sleep(time.Hour)
		if got := l.requests(); len(got) > 0 {
			t.Errorf("requests before the pods are known: %v, want none", got)
		}
		must(t, s.Replace([]any{pod("a")}, "1"))
		time.Sleep(batchDelay)
		if got := l.requests(); !slices.Equal(got, []string{"replace a"}) {
			t.Errorf("requests %v, want all pods once", got)
		}
		b := pod("b")
		must(t, s.Add(b))
		b = b.DeepCopy()
		b.Status.Message, b.ResourceVersion = "which the agent has no use for", "7"
		must(t, s.Update(b))
		time.Sleep(batchDelay)
		if got := l.requests(); !slices.Equal(got, []string{"put b"}) {
			t.Errorf("requests %v, want the changes in a batch", got)
		}
		b = b.DeepCopy()
		b.Status.Message = "nor for that"
		must(t, s.Update(b))
		must(t, s.Delete(cache.DeletedFinalStateUnknown{Key: "shop/p-a", Obj: pod("a")})) // unknown to the agent: no error
		time.Sleep(batchDelay)
		if got := l.requests(); !slices.Equal(got, []string{"delete a"}) {
			t.Errorf("requests %v, want the deletions only", got)
		}
		if s.get("shop", "p-b").Status.Message != "nor for that" || s.get("shop", "p-a") != nil {
			t.Error("the copy does not contain the last pod")
		}
		l.version = 0 // the agent restarted
		must(t, s.Add(pod("c")))
		time.Sleep(batchDelay)
		if got := l.requests(); len(got) != 2 || got[0] != "put c" || !strings.HasPrefix(got[1], "replace ") || len(got[1]) != len("replace b c") {
			t.Errorf("requests %v after a restart of the agent, want all pods", got)
		}
		if err := s.Add("no pod"); err == nil {
			t.Error("want an error for an object of another type")
		}
	})
}

// All pods are resent each minute while the watch is active. Afterwards the agent's copy becomes
// stale.
func TestStalePodsAreNotResent(t *testing.T) {
	runSender(t, func(s *store, l *recordingAgent, again chan struct{}) {
		must(t, s.Replace([]any{pod("a")}, "1"))
		time.Sleep(watchTimeout + time.Second)
		if n := len(l.requests()); n != 3 { // immediately, and after one minute and two: the third is too late
			t.Errorf("all pods sent %d times, want 3", n)
		}
		time.Sleep(time.Hour)
		if got := l.requests(); len(got) > 0 {
			t.Errorf("requests without watch activity: %v, want none", got)
		}
		must(t, s.Bookmark("2"))
		time.Sleep(fullInterval)
		if got := l.requests(); !slices.Equal(got, []string{"replace a"}) {
			t.Errorf("requests after a bookmark: %v, want all pods", got)
		}
		time.Sleep(time.Hour)
		l.requests()
		again <- struct{}{} // a resync sends all pods anyway
		if got := l.requests(); !slices.Equal(got, []string{"replace a"}) {
			t.Errorf("requests after a resync: %v, want all pods", got)
		}
	})
}

// An unreachable agent is retried with backoff, and receives all pods when it is back.
func TestUnreachableAgent(t *testing.T) {
	runSender(t, func(s *store, l *recordingAgent, _ chan struct{}) {
		l.fail = errors.New("no agent")
		must(t, s.Replace([]any{pod("a")}, "1"))
		time.Sleep(10 * time.Minute)
		if n := len(l.requests()); n < 20 || n > 60 {
			t.Errorf("%d requests in ten minutes, want backoff", n)
		}
		l.mu.Lock()
		l.fail = nil
		l.mu.Unlock()
		time.Sleep(maxBackoff)
		if got := l.requests(); len(got) == 0 || got[0] != "replace a" {
			t.Errorf("requests after the recovery: %v, want all pods", fmt.Sprint(got))
		}
	})
}

// crowded returns pods of one author that exceed the agent's limits, and one of another author.
func crowded(n, labels int) (all []any) {
	for i := range n {
		p := pod(fmt.Sprint("big", i))
		p.Labels = map[string]string{}
		for l := range labels {
			p.Labels[fmt.Sprint("l", l)] = strings.Repeat("x", 60)
		}
		all = append(all, p)
	}
	critical := pod("critical")
	critical.Spec.Priority = new(int32(2000000000))
	return append(all, critical)
}

// limitedAgent is an agent that accepts pods as the real one does from a member of socketGroup.
type limitedAgent struct{ store *podstore.Store }

func (a limitedAgent) put(pods any, replace bool) (api.PutAnswer, error) {
	text, err := json.Marshal(pods)
	if err != nil {
		return api.PutAnswer{}, err
	}
	n, version, err := a.store.Put(bytes.NewReader(text), replace, podstore.ByMember)
	return api.PutAnswer{Pods: n, Version: version}, err
}

func (a limitedAgent) ReplacePods(_ context.Context, pods any) (api.PutAnswer, error) {
	return a.put(pods, true)
}
func (a limitedAgent) PutPods(_ context.Context, pods any) (api.PutAnswer, error) {
	return a.put(pods, false)
}
func (a limitedAgent) DeletePod(_ context.Context, uid string) error {
	return a.store.Delete(uid, podstore.ByMember)
}

// However large one author's pods are, the agent receives the pods of other authors.
func TestLargePodsDoNotDisplaceOthers(t *testing.T) {
	for name, pods := range map[string][]any{"one that is too large": crowded(1, 16000), "many that are large": crowded(100, 1200)} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s, a := newStore(nil), limitedAgent{podstore.New()}
			var text strings.Builder
			told := sender{agent: a, store: s, log: slog.New(slog.NewTextHandler(&text, nil))}
			var beside sync.WaitGroup
			beside.Go(func() { told.run(ctx) })
			must(t, s.Replace(pods, "1"))
			time.Sleep(batchDelay)
			must(t, s.Add(pod("late")))
			time.Sleep(trimmedBatchDelay)
			synctest.Wait()
			got := a.store.Snapshot().Pods
			cancel()
			beside.Wait()
			if got["critical"] == nil || got["big0"] == nil || got["late"] == nil {
				t.Errorf("%s: agent has %d pods of %d\n%s", name, len(got), len(pods)+1, text.String())
			}
			if n := strings.Count(text.String(), "level=WARN"); n > 1 {
				t.Errorf("%s: warning logged %d times, want once:\n%s", name, n, text.String())
			}
		})
	}
}

// A watch that is always rejected is logged once and retried with backoff.
func TestRejectedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role"))
		tries := 0
		from := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				tries++
				return nil, refused
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				tries++
				return nil, refused
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var text strings.Builder
		p := New(Options{Source: from, Agent: &recordingAgent{}, Log: slog.New(slog.NewTextHandler(&text, nil))})
		var beside sync.WaitGroup
		beside.Go(func() { p.Run(ctx) })
		time.Sleep(time.Hour)
		cancel()
		beside.Wait()
		if n := strings.Count(text.String(), "pod watch failed"); n != 1 || tries < 20 || tries > 1000 {
			t.Errorf("failure logged %d times, %d tries, want once and 20 to 1000", n, tries)
		}
	})
}

// An API server that refuses connections, which the reflector retries silently, is logged, and so
// is its recovery. The bridge ends immediately, however long the reflector's backoff is.
func TestOutageIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, tries := atomic.Bool{}, 0
		away.Store(true)
		fails := func() error {
			if away.Load() {
				tries++ // the URL has a random timeout
				return &url.Error{Op: "Get", URL: fmt.Sprint("https://a/pods?timeoutSeconds=", tries), Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}
			}
			return nil
		}
		from := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, fails()
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if err := fails(); err != nil {
					return nil, err
				}
				w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
				if o.SendInitialEvents != nil {
					end := &v1.Pod{}
					end.ResourceVersion, end.Annotations = "1", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
					w.Action(watch.Bookmark, end)
				}
				return w, nil
			},
		}
		run := func(while func(log *strings.Builder)) {
			ctx, cancel := context.WithCancel(t.Context())
			var text strings.Builder
			p := New(Options{Source: from, Agent: &recordingAgent{}, Log: slog.New(slog.NewTextHandler(&text, nil))})
			var beside sync.WaitGroup
			beside.Go(func() { p.Run(ctx) })
			while(&text)
			began := time.Now()
			cancel()
			beside.Wait()
			if took := time.Since(began); took > 0 {
				t.Errorf("the bridge ended after %v, want immediately", took)
			}
		}
		run(func(log *strings.Builder) {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := strings.Count(log.String(), "pod watch failed"); n != 1 || !strings.Contains(log.String(), "connection refused") {
				t.Errorf("failure logged %d times, want once:\n%s", n, log)
			}
			away.Store(false)
			time.Sleep(maxBackoff)
			synctest.Wait()
			for _, want := range []string{"pod watch recovered", "pods sent to the agent"} {
				if n := strings.Count(log.String(), want); n != 1 {
					t.Errorf("%q is logged %d times, want once:\n%s", want, n, log)
				}
			}
		})
		away.Store(true)
		run(func(*strings.Builder) { time.Sleep(5*time.Minute + 7*time.Second) })
	})
}
