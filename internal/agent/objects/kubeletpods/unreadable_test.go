package kubeletpods

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// begin serves a kubelet and follows it into a store.
func begin(t *testing.T, k *kubelet, s Store) {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	t.Cleanup(serve(t, k, path))
	r := startWith(Options{Socket: path, Store: s, Log: slog.New(slog.DiscardHandler)},
		timing{look: time.Millisecond, retry: time.Millisecond, sync: time.Minute, resync: time.Hour})
	t.Cleanup(r.Close)
}

// If no pod can be decoded, the store is unchanged and the list is requested again.
func TestNoReadablePod(t *testing.T) {
	calls, k := make(store), &kubelet{send: make(chan *podsv1alpha1.WatchPodsEvent), quiet: true}
	begin(t, k, calls)
	synced := &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}
	k.send <- &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED, Pod: []byte{0xff}}
	k.send <- synced
	k.send <- event(t, podsv1alpha1.EventType_ADDED, "a", 1)
	k.send <- synced
	if got := <-calls; got != "all a=1" {
		t.Errorf("store call = %q, want %q", got, "all a=1")
	}
}

// A pod that cannot be decoded or is too large does not affect the others, in the list or later.
func TestUnreadablePodIsSkipped(t *testing.T) {
	calls, k := make(store), &kubelet{send: make(chan *podsv1alpha1.WatchPodsEvent)}
	begin(t, k, calls)
	added, synced := podsv1alpha1.EventType_ADDED, &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}
	invalid := &podsv1alpha1.WatchPodsEvent{Type: added, Pod: []byte{0xff}}
	large := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "large", Namespace: "shop", Name: "large"}}
	large.Spec = v1.PodSpec{Priority: new(int32), Volumes: make([]v1.Volume, 50_000)}
	raw, err := large.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*podsv1alpha1.WatchPodsEvent{
		event(t, added, "a", 1), invalid, {Type: added, Pod: raw}, event(t, added, "b", 2), synced,
	} {
		k.send <- e
	}
	if got := <-calls; got != "all a=1 b=2" {
		t.Errorf("store call = %q, want %q", got, "all a=1 b=2")
	}
	invalid.Type = podsv1alpha1.EventType_MODIFIED
	k.send <- invalid
	k.send <- event(t, podsv1alpha1.EventType_MODIFIED, "a", 4)
	if got := <-calls; got != "a=4" {
		t.Errorf("store call = %q, want %q", got, "a=4")
	}
}
