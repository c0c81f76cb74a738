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

// listener is an agent that keeps what it is told.
type listener struct {
	mu      sync.Mutex
	asked   []string
	version uint64
	fail    error
}

func (l *listener) say(what string, pods any) (api.PutAnswer, error) {
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

func (l *listener) ReplacePods(_ context.Context, pods any) (api.PutAnswer, error) {
	return l.say("replace", pods)
}

func (l *listener) PutPods(_ context.Context, pods any) (api.PutAnswer, error) {
	return l.say("put", pods)
}

func (l *listener) DeletePod(_ context.Context, uid string) error {
	_, _ = l.say("delete "+uid, []*v1.Pod(nil))
	return &api.StatusError{Status: http.StatusNotFound}
}

// heard is what it was asked since the last time.
func (l *listener) heard() []string {
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

func telling(t *testing.T, do func(s *store, l *listener, again chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, l, again := newStore(nil), &listener{}, make(chan struct{}, 1)
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

// Everything is told when it is known, then what changes, gathered, and nothing that the agent has no use for.
func TestWhatIsTold(t *testing.T) {
	telling(t, func(s *store, l *listener, _ chan struct{}) {
		must(t, s.Add(pod("early"))) // a watch that sends everything is not done yet
		time.Sleep(time.Hour)
		if got := l.heard(); len(got) > 0 {
			t.Errorf("before all are known: %v", got)
		}
		must(t, s.Replace([]any{pod("a")}, "1"))
		time.Sleep(batchDelay)
		if got := l.heard(); !slices.Equal(got, []string{"replace a"}) {
			t.Errorf("%v", got)
		}
		b := pod("b")
		must(t, s.Add(b))
		b = b.DeepCopy()
		b.Status.Message, b.ResourceVersion = "which the agent has no use for", "7"
		must(t, s.Update(b))
		time.Sleep(batchDelay)
		if got := l.heard(); !slices.Equal(got, []string{"put b"}) {
			t.Errorf("%v", got)
		}
		b = b.DeepCopy()
		b.Status.Message = "nor for that"
		must(t, s.Update(b))
		must(t, s.Delete(cache.DeletedFinalStateUnknown{Key: "shop/p-a", Obj: pod("a")})) // which the agent does not know: no error
		time.Sleep(batchDelay)
		if got := l.heard(); !slices.Equal(got, []string{"delete a"}) {
			t.Errorf("%v", got)
		}
		if s.get("shop", "p-b").Status.Message != "nor for that" || s.get("shop", "p-a") != nil {
			t.Error("the copy is another")
		}
		l.version = 0 // it has started anew
		must(t, s.Add(pod("c")))
		time.Sleep(batchDelay)
		if got := l.heard(); len(got) != 2 || got[0] != "put c" || !strings.HasPrefix(got[1], "replace ") || len(got[1]) != len("replace b c") {
			t.Errorf("%v", got)
		}
		if err := s.Add("no pod"); err == nil {
			t.Error("no error")
		}
	})
}

// Everything is told anew each minute while the watch was heard lately; after that the agent is left to see that nobody vouches for it.
func TestWhatIsOldIsNotVouchedFor(t *testing.T) {
	telling(t, func(s *store, l *listener, again chan struct{}) {
		must(t, s.Replace([]any{pod("a")}, "1"))
		time.Sleep(watchTimeout + time.Second)
		if n := len(l.heard()); n != 3 { // at once, and after one minute and two: the third is too late
			t.Errorf("told %d times", n)
		}
		time.Sleep(time.Hour)
		if got := l.heard(); len(got) > 0 {
			t.Errorf("a watch that says nothing: %v", got)
		}
		must(t, s.Bookmark("2"))
		time.Sleep(fullInterval)
		if got := l.heard(); !slices.Equal(got, []string{"replace a"}) {
			t.Errorf("after a bookmark: %v", got)
		}
		time.Sleep(time.Hour)
		l.heard()
		again <- struct{}{} // an agent that knows nothing is told what there is all the same
		if got := l.heard(); !slices.Equal(got, []string{"replace a"}) {
			t.Errorf("asked for: %v", got)
		}
	})
}

// An agent that is away is told everything when it is back, and asked less and less often until then.
func TestAnAgentThatIsAway(t *testing.T) {
	telling(t, func(s *store, l *listener, _ chan struct{}) {
		l.fail = errors.New("no agent")
		must(t, s.Replace([]any{pod("a")}, "1"))
		time.Sleep(10 * time.Minute)
		if n := len(l.heard()); n < 20 || n > 60 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		l.mu.Lock()
		l.fail = nil
		l.mu.Unlock()
		time.Sleep(maxBackoff)
		if got := l.heard(); len(got) == 0 || got[0] != "replace a" {
			t.Errorf("%v", fmt.Sprint(got))
		}
	})
}

// crowded are pods of one author that no agent has room for whole, and one of somebody else's.
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

// takes is an agent that takes pods as the real one does, from a member of the socket's group.
type takes struct{ store *podstore.Store }

func (a takes) put(pods any, replace bool) (api.PutAnswer, error) {
	text, err := json.Marshal(pods)
	if err != nil {
		return api.PutAnswer{}, err
	}
	n, version, err := a.store.Put(bytes.NewReader(text), replace, podstore.ByMember)
	return api.PutAnswer{Pods: n, Version: version}, err
}

func (a takes) ReplacePods(_ context.Context, pods any) (api.PutAnswer, error) {
	return a.put(pods, true)
}
func (a takes) PutPods(_ context.Context, pods any) (api.PutAnswer, error) { return a.put(pods, false) }
func (a takes) DeletePod(_ context.Context, uid string) error {
	return a.store.Delete(uid, podstore.ByMember)
}

// However large one author's pods are, the agent is told of everybody's.
func TestOneAuthorsPodsHideNobodys(t *testing.T) {
	for name, pods := range map[string][]any{"one that is too large": crowded(1, 16000), "many that are large": crowded(100, 1200)} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s, a := newStore(nil), takes{podstore.New()}
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
				t.Errorf("%s: %d pods are known of %d\n%s", name, len(got), len(pods)+1, text.String())
			}
			if n := strings.Count(text.String(), "level=WARN"); n > 1 {
				t.Errorf("%s: said %d times: %s", name, n, text.String())
			}
		})
	}
}

// A watch that is refused all the time is said once, and asked for less and less often.
func TestAWatchThatIsRefused(t *testing.T) {
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
		p := New(Options{Source: from, Agent: &listener{}, Log: slog.New(slog.NewTextHandler(&text, nil))})
		var beside sync.WaitGroup
		beside.Go(func() { p.Run(ctx) })
		time.Sleep(time.Hour)
		cancel()
		beside.Wait()
		if n := strings.Count(text.String(), "pod watch failed"); n != 1 || tries < 20 || tries > 1000 {
			t.Errorf("said %d times, tried %d times", n, tries)
		}
	})
}

// An API that refuses connections for a while, which a reflector tries again without a word: that is said, and that it is back. Told to end,
// the bridge ends, however long the reflector would pause.
func TestAnAPIThatIsAwayIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, tries := atomic.Bool{}, 0
		away.Store(true)
		fails := func() error {
			if away.Load() {
				tries++ // the address has a random time
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
			p := New(Options{Source: from, Agent: &listener{}, Log: slog.New(slog.NewTextHandler(&text, nil))})
			var beside sync.WaitGroup
			beside.Go(func() { p.Run(ctx) })
			while(&text)
			began := time.Now()
			cancel()
			beside.Wait()
			if took := time.Since(began); took > 0 {
				t.Errorf("told to end, it ended after %v", took)
			}
		}
		run(func(log *strings.Builder) {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := strings.Count(log.String(), "pod watch failed"); n != 1 || !strings.Contains(log.String(), "connection refused") {
				t.Errorf("said %d times: %s", n, log)
			}
			away.Store(false)
			time.Sleep(maxBackoff)
			synctest.Wait()
			for _, want := range []string{"pod watch recovered", "pods sent to the agent"} {
				if n := strings.Count(log.String(), want); n != 1 {
					t.Errorf("%q is said %d times: %s", want, n, log)
				}
			}
		})
		away.Store(true)
		run(func(*strings.Builder) { time.Sleep(5*time.Minute + 7*time.Second) })
	})
}
