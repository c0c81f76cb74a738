package podstore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/cri"
	"jettison/eviction"
	"jettison/stats"
	"jettison/stats/read"
)

// text returns a pod as a client puts it.
func text(uid string, priority int) string {
	return fmt.Sprintf(`{"metadata":{"uid":%q,"namespace":"default","name":"pod-%s"},"spec":{"priority":%d,"containers":[{"name":"c",
"resources":{"requests":{"memory":"64Mi"},"limits":{"memory":"1Gi","ephemeral-storage":"1Gi"}}}]}}`, uid, uid, priority)
}

func put(t testing.TB, s *Store, replace bool, pods ...string) {
	t.Helper()
	n, version, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), replace, ByRoot)
	if err != nil || n != len(pods) || version != s.Snapshot().Version {
		t.Fatalf("Put = %d pods, version %d, error %v; want all pods and the snapshot's version", n, version, err)
	}
}

func uids(s *Snapshot) []string { return slices.Sorted(maps.Keys(s.Pods)) }

func TestPutAddsAndReplaces(t *testing.T) {
	s := New()
	if got := s.Snapshot(); got.Version != 0 || len(got.Pods) != 0 {
		t.Errorf("first snapshot = %+v, want it empty", got)
	}
	put(t, s, false, text("a", 1), text("b", 1))
	put(t, s, false, text("c", 1), text("b", 2))
	if got := uids(s.Snapshot()); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("pods after two puts = %v, want a, b, c", got)
	}
	if got := *s.Snapshot().Objects[1].Spec.Priority; got != 2 {
		t.Errorf("priority of b = %d, want 2 of the last put", got)
	}
	put(t, s, true, text("b", 2))
	if got := uids(s.Snapshot()); !slices.Equal(got, []string{"b"}) {
		t.Errorf("pods after a replace = %v, want b", got)
	}
	put(t, s, true)
	if got := s.Snapshot(); len(got.Pods) != 0 || len(got.Objects) != 0 {
		t.Errorf("pods after a replace with none = %v, want none", uids(got))
	}
}

// ClientTimes counts a put without changes, but not a failed one. Only a replace counts as synced.
func TestClientTimes(t *testing.T) {
	s := New()
	if heard, synced := s.ClientTimes(); !heard.IsZero() || !synced.IsZero() {
		t.Errorf("first ClientTimes = %v, %v, want zero", heard, synced)
	}
	put(t, s, true, text("a", 1))
	first, synced := s.ClientTimes()
	if first.IsZero() || !synced.Equal(first) {
		t.Errorf("ClientTimes after a replace = %v, %v, want equal times", first, synced)
	}
	if _, _, err := s.Put(strings.NewReader("["), false, ByRoot); err == nil {
		t.Fatal("Put of a truncated list accepted")
	}
	if heard, _ := s.ClientTimes(); !heard.Equal(first) {
		t.Errorf("time after a failed put = %v, want it unchanged", heard)
	}
	put(t, s, false)
	second, again := s.ClientTimes()
	if !second.After(first) || !again.Equal(synced) || len(s.Snapshot().Pods) != 1 {
		t.Errorf("after an empty list: times %v, %v, pods %v; want a later time and the old sync", second, again, uids(s.Snapshot()))
	}
	if err := s.Delete("a", ByRoot); err != nil {
		t.Fatal(err)
	}
	if heard, _ := s.ClientTimes(); !heard.After(second) {
		t.Errorf("time after a delete = %v, want it later", heard)
	}
}

// A put of equal objects makes no new version, so it causes no record and no look.
func TestEqualPutIsNoChange(t *testing.T) {
	s := New()
	put(t, s, false, text("a", 1), text("b", 1))
	<-s.Changed()
	before := s.Snapshot()
	put(t, s, true, text("b", 1), text("a", 1))
	put(t, s, false, text("a", 1))
	if s.Snapshot() != before {
		t.Errorf("version after equal puts = %d, want %d", s.Snapshot().Version, before.Version)
	}
	select {
	case <-s.Changed():
		t.Error("Changed received after equal puts")
	default:
	}
	put(t, s, true, text("a", 1))
	put(t, s, true, text("a", 2))
	if got := s.Snapshot().Version; got != before.Version+2 {
		t.Errorf("version after two changes = %d, want %d", got, before.Version+2)
	}
	<-s.Changed()
	select {
	case <-s.Changed():
		t.Error("Changed received twice, want two changes as one")
	default:
	}
}

func TestDelete(t *testing.T) {
	s := New()
	put(t, s, false, text("a", 1), text("b", 1))
	before := s.Snapshot()
	if s.Delete("a", ByRoot) != nil || s.Delete("a", ByRoot) == nil || s.Delete("", ByRoot) == nil {
		t.Error("Delete: want success only for the first of a known pod")
	}
	if got := s.Snapshot(); !slices.Equal(uids(got), []string{"b"}) || got.Version != before.Version+1 {
		t.Errorf("after Delete: pods %v, version %d; want b and one version more", uids(got), got.Version)
	}
	if len(before.Pods) != 2 || len(before.Objects) != 2 || before.Clients != 2 {
		t.Error("earlier snapshot changed by Delete")
	}
}

// Put is all or nothing: if the third pod is invalid, the first two are not added, and known pods
// stay.
func TestInvalidPutChangesNothing(t *testing.T) {
	s := New()
	put(t, s, false, text("old", 1))
	before := s.Snapshot()
	for body, want := range map[string]string{
		`[` + text("a", 1) + `,` + text("b", 1) + `,{}]`: `pods[2]: metadata.uid: missing`,
		`[` + text("a", 1) + `,` + text("a", 2) + `]`:    `pods[1]: metadata.uid: "a" occurs twice in the list`,
		`[` + text("a", 1): `incomplete text`,
		`{"items":[` + text("a", 1) + `],"items":[]}`:                  `duplicate field "items"`,
		`[` + strings.Replace(text("a", 1), "64Mi", "6e9999", 1) + `]`: `pods[0]: spec.containers[0].resources.requests.memory: quantity "6e9999": the exponent is not between -1000 and 1000`,
	} {
		for _, replace := range []bool{false, true} {
			if _, _, err := s.Put(strings.NewReader(body), replace, ByRoot); err == nil || err.Error() != want {
				t.Errorf("Put of %s: error\n got %v\nwant %s", body, err, want)
			}
		}
	}
	if s.Snapshot() != before {
		t.Errorf("pods after invalid puts = %v, want old", uids(s.Snapshot()))
	}
	if s.staged.Load() != 0 {
		t.Errorf("%d bytes charged after invalid puts, want 0", s.staged.Load())
	}
}

func list(from, to int) io.Reader {
	var pods []string
	for i := from; i < to; i++ {
		pods = append(pods, text(fmt.Sprint("u", i), 0))
	}
	return strings.NewReader("[" + strings.Join(pods, ",") + "]")
}

func TestBounds(t *testing.T) {
	s := New()
	if _, _, err := s.Put(list(0, MaxPods+1), false, ByRoot); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Put of too many pods: error %v, want ErrTooLarge", err)
	}
	if _, _, err := s.Put(list(0, MaxPods), false, ByRoot); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Put(list(MaxPods, MaxPods+1), false, ByRoot); !errors.Is(err, ErrFull) || len(s.Snapshot().Pods) != MaxPods {
		t.Errorf("Put of one pod more: error %v, %d pods; want ErrFull", err, len(s.Snapshot().Pods))
	}
	if _, _, err := s.Put(list(MaxPods, MaxPods+1), true, ByRoot); err != nil || len(s.Snapshot().Pods) != 1 {
		t.Errorf("replace by one pod: error %v, %d pods; want 1", err, len(s.Snapshot().Pods))
	}
	label := strings.Repeat("x", 900<<10)
	large := func(i int) string {
		return strings.Replace(text(fmt.Sprint("l", i), 0), `"uid"`, `"labels":{"a":"`+label+`"},"uid"`, 1)
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, _, err = s.Put(strings.NewReader("["+large(i)+"]"), false, ByRoot)
	}
	if n := len(s.Snapshot().Pods); !errors.Is(err, ErrFull) || n < 7 || n > 10 {
		t.Errorf("%d large pods fit one by one, error %v; want 7 to 10, ErrFull", n, err)
	}
}

// All Puts in flight together use no more memory than the budget.
func TestBusy(t *testing.T) {
	s := New()
	s.staged.Store(maxAll)
	s.roots.Store(maxAll)
	for _, by := range []Role{ByMember, ByRoot} {
		if _, _, err := s.Put(list(0, 20), false, by); !errors.Is(err, ErrBusy) {
			t.Errorf("Put with a used budget: error %v, want ErrBusy", err)
		}
	}
	if _, _, err := s.Put(list(0, 1), false, ByMember); err != nil {
		t.Errorf("Put of an ordinary pod with a used budget: %v", err)
	}
	s.staged.Store(0)
	if _, _, err := s.Put(list(0, 1), false, ByRoot); err != nil {
		t.Error(err)
	}
}

func manifest(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
}

func running(uid, name string) cri.Listing {
	return cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s-" + uid, UID: uid, Namespace: "kube-system", Name: name, Ready: true,
		Annotations: map[string]string{"kubernetes.io/config.source": "file"}}}}
}

// A manifest becomes an object when the runtime has its pod, and the eviction policy treats it as
// static.
func TestManifests(t *testing.T) {
	s := New()
	all := []*v1.Pod{manifest("etcd")}
	s.SetManifests(all)
	if got := s.Snapshot(); len(got.Objects)+len(got.Pods) != 0 || !slices.Equal(got.Manifests, all) {
		t.Errorf("manifest without a pod: snapshot %+v, want it known and no object", got)
	}
	s.SetRuntime(read.NewIndex(running("h1", "etcd-n1")))
	got := s.Snapshot()
	if !slices.Equal(uids(got), []string{"h1"}) || got.Objects[0].Name != "etcd-n1" || got.Objects[0].Annotations["kubernetes.io/config.source"] != "file" {
		t.Fatalf("objects = %v, want etcd-n1 with source file", got.Objects)
	}
	if all[0].UID != "" || all[0].Annotations != nil {
		t.Error("SetRuntime changed the manifest")
	}
	s.SetRuntime(read.NewIndex(running("h1", "etcd-n1"))) // listed again
	s.SetManifests(all)
	if s.Snapshot() != got {
		t.Error("new snapshot without a change")
	}
	s.SetRuntime(read.NewIndex(running("h2", "etcd-n1"))) // after an update of the manifest
	if got := s.Snapshot(); !slices.Equal(uids(got), []string{"h2"}) {
		t.Errorf("pods after an update of the manifest = %v, want h2", uids(got))
	}
	put(t, s, true)
	if got := uids(s.Snapshot()); len(got) != 1 || s.Delete("h2", ByRoot) == nil {
		t.Errorf("pods after a client's replace and delete = %v, want h2", got)
	}
	s.SetManifests(nil)
	if got := uids(s.Snapshot()); len(got) != 0 {
		t.Errorf("pods without manifests = %v, want none", got)
	}
}

// A client's object of a static pod does not make it a victim: the manifest overrides it, also if
// the client puts later.
func TestManifestOverridesClient(t *testing.T) {
	s := New()
	s.SetManifests([]*v1.Pod{manifest("etcd")})
	s.SetRuntime(read.NewIndex(running("h1", "etcd-n1")))
	put(t, s, false, `{"metadata":{"uid":"h1","namespace":"kube-system","name":"etcd-n1","annotations":{"kubernetes.io/config.source":"api"}}}`)
	got := s.Snapshot()
	if len(got.Objects) != 1 || got.Clients != 0 || got.Objects[0].Annotations["kubernetes.io/config.source"] != "file" {
		t.Fatalf("objects = %v, want the manifest's", got.Objects)
	}
	m := eviction.NewManager(eviction.Config{Thresholds: mustParse(t), MemoryAvailable: stats.MemoryAvailableKernel})
	summary := &stats.Summary{}
	summary.Pods = []stats.PodStats{{PodRef: got.Pods["h1"].Ref, Announced: true}}
	summary.Node.Memory = stats.NodeMemoryStats{Time: time.Unix(1, 0), CapacityBytes: stats.Some[uint64](1 << 30), KernelAvailableBytes: stats.Some[uint64](1 << 20)}
	d := m.Step(summary.Node.Memory.Time, eviction.Input{Summary: summary, Pods: got.Pods})
	if len(d.Evictions) != 0 || len(d.Protected) != 1 || d.Protected[0].Protected != "static pod (source file)" {
		t.Errorf("decision = %+v, want the static pod protected", d)
	}
}

func mustParse(t *testing.T) []eviction.Threshold {
	all, _, errs := eviction.Settings{EvictionHard: map[string]string{"memory.available": "100Mi"}}.Parse()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return all
}

// Compares the store with a simple model on random operations.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, model, version := New(), map[string]int{}, uint64(0)
		id := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				batch := rapid.MapOf(id, rapid.IntRange(0, 1)).Draw(t, "pods")
				replace := rapid.Bool().Draw(t, "replace")
				var pods []string
				for uid, priority := range batch {
					pods = append(pods, text(uid, priority))
				}
				if _, _, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), replace, ByRoot); err != nil {
					t.Fatal(err)
				}
				if replace {
					clear(model)
				}
				maps.Copy(model, batch)
			},
			"delete": func(t *rapid.T) {
				uid := id.Draw(t, "uid")
				if _, known := model[uid]; (s.Delete(uid, ByRoot) == nil) != known {
					t.Fatalf("Delete(%s) of a pod with known = %v: unexpected result", uid, known)
				}
				delete(model, uid)
			},
			"": func(t *rapid.T) {
				snap, got := s.Snapshot(), map[string]int{}
				for _, o := range snap.Objects {
					got[string(o.UID)] = int(*o.Spec.Priority)
				}
				if !reflect.DeepEqual(got, model) || len(snap.Pods) != len(model) || snap.Version < version {
					t.Fatalf("pods = %v in version %d, want %v", got, snap.Version, model)
				}
				version = snap.Version
			},
		})
	})
}

// Concurrent writers and readers, for the race detector.
func TestConcurrency(t *testing.T) {
	s := New()
	s.SetManifests([]*v1.Pod{manifest("etcd")})
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := range 50 {
				uid := fmt.Sprintf("w%d-%d", w, i%5)
				put1 := strings.NewReader("[" + text(uid, i) + "]")
				if _, _, err := s.Put(put1, false, ByRoot); err != nil {
					t.Error(err)
				}
				if err := s.Delete(uid, ByRoot); err != nil {
					t.Error(err)
				}
				s.SetRuntime(read.NewIndex(running(fmt.Sprint("h", i), "etcd-n1")))
			}
		})
	}
	readers.Go(func() {
		for last := uint64(0); ; {
			select {
			case <-s.Changed():
				snap := s.Snapshot()
				if snap.Version < last {
					t.Errorf("snapshot version %d received after %d", snap.Version, last)
				}
				last = snap.Version
				for _, o := range snap.Objects {
					if snap.Pods[string(o.UID)] == nil {
						t.Errorf("%s is in Objects and not in Pods", o.UID)
					}
				}
			case <-stop:
				return
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	if got := s.Snapshot(); len(got.Pods) != 1 {
		t.Errorf("pods after all deletes = %v, want the manifest's", uids(got))
	}
}

func full(b *testing.B, n int) *Store {
	s := New()
	if _, _, err := s.Put(list(0, n), false, ByRoot); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkPut110(b *testing.B) {
	s := full(b, 110)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.Put(list(0, 110), true, ByRoot); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDelete(b *testing.B) {
	s := full(b, MaxPods)
	for b.Loop() {
		b.StopTimer()
		put(b, s, false, text("u1", 0))
		b.StartTimer()
		_ = s.Delete("u1", ByRoot)
	}
}

// Measures the loop's call after each listing without a change.
func BenchmarkSetRuntime110(b *testing.B) {
	s := full(b, 110)
	listing := running("h1", "etcd-n1")
	for i := range 110 {
		listing.Sandboxes = append(listing.Sandboxes, cri.PodSandbox{ID: fmt.Sprint(i), UID: fmt.Sprint("u", i), Namespace: "default", Name: fmt.Sprint("pod-u", i),
			Annotations: map[string]string{"kubernetes.io/config.source": "api"}})
	}
	var all []*v1.Pod
	for i := range 10 {
		m := manifest(fmt.Sprint("etcd", i))
		m.UID = types.UID(fmt.Sprint("m", i))
		all = append(all, m)
	}
	s.SetManifests(all)
	index := read.NewIndex(listing)
	b.ReportAllocs()
	for b.Loop() {
		s.SetRuntime(index)
	}
}

// A full store accepts equal pods, which use no memory, but not as many different ones, since both
// exist until the end.
func TestFullStoreIsReplacedByEqualPods(t *testing.T) {
	s := New()
	put := func(prefix string) error {
		_, _, err := s.Put(&endless{text: fat["containers"]("UID"), prefix: prefix, n: 80}, true, ByRoot)
		return err
	}
	if err := put("a"); err != nil {
		t.Fatal(err)
	}
	if held := s.held.Load(); held < MaxMemory/4 || held > MaxMemory {
		t.Fatalf("%d bytes held by the first put, want 2 to 8 MiB", held)
	}
	s.held.Store(maxBoth - 100) // as if more were known
	before := s.Snapshot().Version
	if err := put("a"); err != nil || s.Snapshot().Version != before || s.staged.Load() != 0 {
		t.Errorf("replace by equal pods: error %v, version %d after %d, %d bytes staged", err, s.Snapshot().Version, before, s.staged.Load())
	}
	if err := put("b"); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "in parts") || s.staged.Load() != 0 {
		t.Errorf("replace by other pods: error %v, %d bytes staged; want ErrFull", err, s.staged.Load())
	}
}
