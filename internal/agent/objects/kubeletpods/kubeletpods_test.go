package kubeletpods

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"jettison/internal/agent/objects/podstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubelet serves the events of a test to each watcher.
type kubelet struct {
	podsv1alpha1.UnimplementedPodsServer
	send  chan *podsv1alpha1.WatchPodsEvent // a nil event ends the stream
	quiet bool                              // sends nothing after the complete list
}

func (k *kubelet) WatchPods(_ *podsv1alpha1.WatchPodsRequest, s grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	for s.Context().Err() == nil {
		select {
		case e := <-k.send:
			if e == nil {
				return errors.New("kubelet restarts")
			}
			if err := s.Send(e); err != nil {
				return err
			}
			if k.quiet && e.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE {
				<-s.Context().Done()
			}
		case <-s.Context().Done():
		}
	}
	return s.Context().Err()
}

// serve starts the kubelet's server; stop ends it.
func serve(t *testing.T, k *kubelet, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(grpc.WaitForHandlers(true)), make(chan struct{})
	podsv1alpha1.RegisterPodsServer(server, k)
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	return func() { server.Stop(); <-done }
}

func event(t *testing.T, kind podsv1alpha1.EventType, uid string, priority int32) *podsv1alpha1.WatchPodsEvent {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", Name: uid}, Spec: v1.PodSpec{Priority: &priority}}
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &podsv1alpha1.WatchPodsEvent{Type: kind, Pod: raw}
}

// store sends its calls as text.
type store chan string

func (s store) SetKubelet(pods []*v1.Pod) error {
	text := "all"
	for _, p := range pods {
		text += fmt.Sprintf(" %s=%d", p.UID, *p.Spec.Priority)
	}
	s <- text
	return nil
}

func (s store) UpdateKubelet(p *v1.Pod) error {
	s <- fmt.Sprintf("%s=%d", p.UID, *p.Spec.Priority)
	return nil
}

func (s store) DropKubelet(uid string) { s <- uid + " dropped" }

// The reader passes the complete list, then changes. After a restart it passes a new list, and
// drops no pod meanwhile.
func TestKubeletIsFollowed(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "pods-api.sock")
	calls, k := make(store), &kubelet{send: make(chan *podsv1alpha1.WatchPodsEvent)}
	r := startWith(Options{Socket: path, Store: calls, Log: slog.New(slog.DiscardHandler)},
		timing{look: time.Millisecond, retry: time.Millisecond, sync: time.Minute, resync: time.Hour})
	defer r.Close()
	stop := serve(t, k, path) // the socket appears after the start
	want := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if got := <-calls; got != text {
				t.Errorf("store call = %q, want %q", got, text)
			}
		}
	}
	added, modified, deleted := podsv1alpha1.EventType_ADDED, podsv1alpha1.EventType_MODIFIED, podsv1alpha1.EventType_DELETED
	synced := &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}
	k.send <- event(t, added, "a", 1)
	k.send <- event(t, added, "b", 2)
	k.send <- synced
	want("all a=1 b=2")
	k.send <- event(t, modified, "b", 3)
	want("b=3")
	k.send <- &podsv1alpha1.WatchPodsEvent{Type: 77, Pod: []byte("of a newer kubelet")}
	k.send <- event(t, deleted, "a", 0)
	want("a dropped")
	k.send <- nil
	k.send <- event(t, added, "c", 4) // the stream ends before the list is complete
	k.send <- nil
	stop()
	stop = serve(t, k, path)
	defer stop()
	k.send <- event(t, added, "b", 5)
	k.send <- synced
	want("all b=5")
}

// The list is read again from time to time, because a kubelet drops events.
func TestPeriodicResync(t *testing.T) {
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	calls, k := make(store), &kubelet{send: make(chan *podsv1alpha1.WatchPodsEvent), quiet: true}
	defer serve(t, k, path)()
	r := startWith(Options{Socket: path, Store: calls, Log: slog.New(slog.DiscardHandler)},
		timing{look: time.Millisecond, retry: time.Millisecond, sync: time.Minute, resync: time.Millisecond})
	defer r.Close()
	for range 3 {
		k.send <- event(t, podsv1alpha1.EventType_ADDED, "a", 1)
		k.send <- &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}
		if got := <-calls; got != "all a=1" {
			t.Errorf("store call = %q, want %q", got, "all a=1")
		}
	}
}

// reportingStore is the agent's store. It sends the result of each SetKubelet.
type reportingStore struct {
	*podstore.Store
	results chan error
}

func (s reportingStore) SetKubelet(pods []*v1.Pod) error {
	err := s.Store.SetKubelet(pods)
	s.results <- err
	return err
}

// Large pods of one author hide no pods of others.
func TestLargePodsHideNoOthers(t *testing.T) {
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	store, k := reportingStore{podstore.New(), make(chan error)}, &kubelet{send: make(chan *podsv1alpha1.WatchPodsEvent)}
	defer serve(t, k, path)()
	var text strings.Builder
	r := startWith(Options{Socket: path, Store: store, Log: slog.New(slog.NewTextHandler(&text, nil))},
		timing{look: time.Millisecond, retry: time.Millisecond, sync: time.Minute, resync: time.Hour})
	defer r.Close()
	for i := range 100 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(fmt.Sprint("big", i)), Namespace: "shop", Name: fmt.Sprint("big", i), Labels: map[string]string{},
		}}
		for l := range 1200 {
			p.Labels[fmt.Sprint("l", l)] = strings.Repeat("x", 60)
		}
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		k.send <- &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED, Pod: raw}
	}
	k.send <- event(t, podsv1alpha1.EventType_ADDED, "critical", 2000000000)
	k.send <- &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}
	if err := <-store.results; err != nil {
		t.Error(err)
	}
	if all := store.Snapshot().Pods; len(all) != 101 || all["critical"] == nil {
		t.Errorf("%d pods known, want all 101 with the critical one", len(all))
	}
	r.Close()
	if !strings.Contains(text.String(), "pod objects of this node reduced to fit") {
		t.Errorf("log = %s, want the reduced pods", text.String())
	}
}

func TestPath(t *testing.T) {
	for _, c := range [][3]string{
		{"", "/var/lib/kubelet", "/var/lib/kubelet/pods-api/pods-api.sock"}, {"/host", "/k", "/host/k/pods-api/pods-api.sock"}, {"/host", "", ""},
	} {
		if got := Path(c[0], c[1]); got != c[2] {
			t.Errorf("Path(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
