package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/admit"
	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/podstore"
	"jettison/internal/repeat"
	"jettison/stats"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a gate on a node with so much for pods.
func gate(t testing.TB, allocatable v1.ResourceList, o Options) (*Admission, *Part) {
	t.Helper()
	a := New(policy)
	o.Capacity = func() v1.ResourceList { return allocatable }
	o.Allocatable = func(c v1.ResourceList) v1.ResourceList { return c }
	if o.Evictions == nil {
		o.Evictions = func(time.Time) (ending, undying map[string]bool) { return nil, nil }
	}
	if o.HeldOff == nil {
		o.HeldOff = func(time.Time, string) (string, bool) { return "", false }
	}
	o.Self = func() string { return "" }
	o.Name = func(p stats.PodReference) string { return p.Name }
	return a, NewPart(a, o)
}

func list(cpu, memory, pods string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory), v1.ResourcePods: resource.MustParse(pods)}
}

func sandbox(t testing.TB, line string, args ...any) *cri.PodSandbox {
	t.Helper()
	p, _, err := parseSandbox(fmt.Sprintf(line, args...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Before the first snapshot each pod is let in, and no client gets an answer.
func TestBeforeTheFirstLook(t *testing.T) {
	a, part := gate(t, nil, Options{})
	if why := a.Refuse(time.Now(), sandbox(t, "default/p be"), ""); why != "" {
		t.Error(why)
	}
	if _, err := a.Ask(t.Context(), &v1.Pod{}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if s := part.State(false); s.Unknown != 1 || s.Enforced || s.Asked {
		t.Errorf("%+v", s)
	}
}

// However the loop comes around between questions, pods that were let in and not told to have left never hold more than there is.
func TestWhatIsLetInFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const cpu, pods = 1000, 5
		a, part := gate(t, list("1", "1Gi", fmt.Sprint(pods)), Options{})
		now := time.Now()
		part.Publish(now, nil, false)
		running, asked, refused := map[string]int{}, map[string]int{}, 0 // thousandths of a core
		learn := func(listed func(name string) bool) {
			l := cri.Listing{}
			for _, name := range slices.Sorted(maps.Keys(running)) {
				if listed(name) {
					l.Sandboxes = append(l.Sandboxes, *sandbox(t, "default/%s bu cpu=%dm", name, asked[name]))
				}
			}
			part.OnPods(read.NewIndex(l))
			part.Publish(now, nil, false)
		}
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1, 2:
				name, milli := fmt.Sprint("p", i), rapid.IntRange(1, 600).Draw(rt, "cpu")
				p := sandbox(t, "default/%s bu cpu=%dm", name, milli)
				r := read.CPURequest(p.CPUShares)
				sum := 0
				for _, v := range running {
					sum += v
				}
				fits := sum+int(r.V.Min) <= cpu && len(running) < pods
				why := a.Refuse(now, p, "")
				if (why == "") != fits {
					rt.Fatalf("%d of %d beside %v: %q", r.V.Min, cpu, running, why)
				}
				if why == "" {
					running[name], asked[name] = int(r.V.Min), milli
				} else {
					refused++
				}
			case 3: // the loop learns of some; of what it knows it hears again
				learn(func(name string) bool { return part.index[name] != nil || rapid.Bool().Draw(rt, "listed") })
			case 4: // one ends, and the loop learns of that
				if names := slices.Sorted(maps.Keys(running)); len(names) > 0 {
					gone := rapid.SampledFrom(names).Draw(rt, "ends")
					delete(running, gone)
					a.Left(gone)
					learn(func(name string) bool { return part.index[name] != nil })
				}
			}
		}
		if got := part.State(true); int(got.Refused) != refused {
			rt.Fatalf("%d refused, counted %d", refused, got.Refused)
		}
	})
}

// A turn of the loop that learnt nothing allocates nothing, and leaves the snapshot as it is.
func TestATurnWithoutNewsIsFree(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{})
	now, conditions := time.Now(), []eviction.Condition{"MemoryPressure"}
	part.Publish(now, conditions, false)
	before := a.snapshot.Load()
	if n := testing.AllocsPerRun(100, func() { part.Publish(now, conditions, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if a.snapshot.Load() != before {
		t.Error("a new snapshot")
	}
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"a condition", func() { part.Publish(now, nil, false) }},
		{"a kubelet", func() { part.Publish(now, nil, true) }},
		{"an eviction", func() { part.Changed(); part.Publish(now, nil, true) }},
		{"pods", func() { part.OnPods(read.Index{}); part.Publish(now, nil, true) }},
		{"objects", func() { part.OnObjects(podstore.New().Snapshot()); part.Publish(now, nil, true) }},
	} {
		was := a.snapshot.Load()
		if c.change(); a.snapshot.Load() == was {
			t.Errorf("%s: no new snapshot", c.what)
		}
	}
}

// What the node has is read again after a while, not at each change.
func TestCapacityIsReadNowAndThen(t *testing.T) {
	read := 0
	a, part := gate(t, nil, Options{})
	part.o.Capacity = func() v1.ResourceList {
		read++
		return list("1", "1Gi", fmt.Sprint(read))
	}
	now := time.Now()
	for range 3 {
		part.Changed()
		part.Publish(now, nil, false)
	}
	if read != 1 {
		t.Errorf("read %d times", read)
	}
	part.Changed()
	part.Publish(now.Add(capacityFor), nil, false)
	if q := a.snapshot.Load().Node.Allocatable[v1.ResourcePods]; q.Value() != 2 {
		t.Errorf("%v pods", q.Value())
	}
}

// Whoever asks sees one snapshot, whatever the loop does meanwhile. The race detector is who judges.
func TestAskedFromManySides(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{})
	part.Publish(time.Now(), nil, false)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				name := fmt.Sprintf("p%d-%d", i, j)
				a.Refuse(time.Now(), sandbox(t, "default/%s bu cpu=1m", name), "")
				if _, err := a.Ask(context.Background(), &v1.Pod{}); err != nil {
					t.Error(err)
				}
				a.Left(name)
				a.Answered(time.Millisecond, j%2 == 0)
			}
		})
	}
	for i := range 200 {
		part.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox(t, "default/r%d bu cpu=1m", i)}}))
		part.Publish(time.Now(), []eviction.Condition{"MemoryPressure"}, i%2 == 0)
		part.State(true)
	}
	wg.Wait()
	if s := part.State(true); s.Answers.Count != 800 || s.HeldOff != 400 || s.Admitted+s.Refused+s.Observed != 800 {
		t.Errorf("%+v", s)
	}
}

// preemptor notes who wants room.
type preemptor struct{ wanted []types.UID }

func (p *preemptor) Want(pod admit.PodAttributes) string {
	p.wanted = append(p.wanted, pod.Pod.UID)
	return "; noted"
}
func (p *preemptor) Preempt(_ context.Context, pod admit.PodAttributes) (admit.Result, error) {
	p.wanted = append(p.wanted, pod.Pod.UID)
	return admit.Result{Admit: true}, nil
}

// Room is made only for who lacks nothing else, and whose priority is known; never beside a kubelet.
func TestWhoWantsRoom(t *testing.T) {
	by := &preemptor{}
	a, part := gate(t, list("1", "1Gi", "10"), Options{Preemptor: by})
	now := time.Now()
	for _, kubelet := range []bool{true, false} {
		part.Publish(now, nil, kubelet)
		for _, line := range []string{
			"kube-system/unknown bu cpu=2", "kube-system/known bu cpu=2 jettison/priority=2000000000", "kube-system/low bu cpu=2 jettison/priority=1",
			"default/tenant bu cpu=2 jettison/priority=2000000000", "default/fits bu cpu=1m",
		} {
			before := len(by.wanted)
			if why := a.Refuse(now, sandbox(t, "%s", line), ""); strings.HasSuffix(why, "; noted") != (len(by.wanted) > before) {
				t.Errorf("%s: %q", line, why)
			}
		}
	}
	part.Publish(now, []eviction.Condition{"DiskPressure"}, false)
	a.Refuse(now, sandbox(t, "kube-system/pressed bu cpu=2 jettison/priority=1"), "")
	if want := []types.UID{"known", "low"}; !slices.Equal(by.wanted, want) {
		t.Errorf("%v want room", by.wanted)
	}
	if r, err := a.Preempt(t.Context(), &v1.Pod{}); err != nil || !r.Admit {
		t.Error(r, err)
	}
	without, _ := gate(t, nil, Options{})
	if _, err := without.Preempt(t.Context(), &v1.Pod{}); !errors.Is(err, ErrNoPreemption) {
		t.Error(err)
	}
}

// A client is told that a pod is held off, as it would be in the runtime.
func TestAHeldOffPodIsRefused(t *testing.T) {
	by := &preemptor{}
	heldOff := func(_ time.Time, uid string) (string, bool) { return "it leaks", uid == "u" }
	a, part := gate(t, list("1", "1Gi", "10"), Options{HeldOff: heldOff, Preemptor: by})
	part.Publish(time.Now(), nil, false)
	for uid, want := range map[types.UID]admit.Result{"u": {Reason: "Evicted", Message: "it leaks"}, "other": {Admit: true}} {
		p := &v1.Pod{}
		p.UID = uid
		if got, err := a.Ask(t.Context(), p); err != nil || got != want {
			t.Errorf("%s: %+v, %v", uid, got, err)
		}
		if got, err := a.Preempt(t.Context(), p); err != nil || got != want {
			t.Errorf("%s, preempting: %+v, %v", uid, got, err)
		}
	}
	if !slices.Equal(by.wanted, []types.UID{"other"}) {
		t.Errorf("%v preempt", by.wanted)
	}
}

// A pod that was killed and is dead holds no room, whatever the runtime says yet; one that came back under its UID does.
func TestWhoIsDeadHoldsNothing(t *testing.T) {
	dead := map[string][]string{}
	a, part := gate(t, list("1", "1Gi", "10"), Options{Dead: func(time.Time) map[string][]string { return dead }})
	victim, now := sandbox(t, "default/victim be"), time.Now()
	part.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*victim}}))
	for _, test := range []struct {
		sandboxes []string
		held      int
	}{{nil, 1}, {[]string{"older", victim.ID}, 0}, {[]string{"older"}, 1}} {
		dead[victim.UID] = test.sandboxes
		part.Changed()
		part.Publish(now, nil, false)
		if n, err := a.State(now); err != nil || len(n.Pods) != test.held {
			t.Errorf("dead %v: %d pods hold room, %v", test.sandboxes, len(n.Pods), err)
		}
	}
}

// An object of another pod than the runtime has by its UID says nothing of what that one holds.
func TestAnotherPodsObject(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{})
	object := &v1.Pod{}
	object.UID, object.Namespace, object.Name = "p", "default", "other"
	object.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("500m", "1Mi", "1")}}}
	part.objects = map[string]*v1.Pod{"p": object}
	part.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox(t, "default/p bu cpu=10m")}}))
	now := time.Now()
	part.Publish(now, nil, false)
	n, err := a.State(now)
	if err != nil || len(n.Pods) != 1 || n.Pods[0].Name != "p" || n.Pods[0].Requests[v1.ResourceCPU] != 10 {
		t.Errorf("%+v, %v", n.Pods, err)
	}
}

// Of more pods than are kept the latest count, in one slice that does not grow.
func TestLetInIsBounded(t *testing.T) {
	var l letIn
	now := time.Now()
	for i := range 3 * maxLetIn {
		l.keep(now, admit.Held{UID: types.UID(fmt.Sprint(i))})
	}
	if last := l[len(l)-1]; len(l) != maxLetIn || last.pod.UID != types.UID(fmt.Sprint(3*maxLetIn-1)) {
		t.Errorf("%d are kept, the last is %s", len(l), last.pod.UID)
	}
}

// Room that was promised is taken for all but who it was promised to.
func TestPromises(t *testing.T) {
	promised := []admit.Held{{UID: "p", Requests: admit.Amounts{v1.ResourceCPU: 800}}}
	a, part := gate(t, list("1", "1Gi", "10"), Options{Promised: func(time.Time) []admit.Held { return promised }})
	now := time.Now()
	part.Publish(now, nil, false)
	for line, in := range map[string]bool{"default/other bu cpu=300m": false, "default/p bu cpu=900m": true} {
		if why := a.Refuse(now, sandbox(t, "%s", line), ""); (why == "") != in {
			t.Errorf("%s: %q", line, why)
		}
	}
	// Let in, it counts once, and the other one still finds no room.
	if why := a.Refuse(now, sandbox(t, "default/other bu cpu=150m"), ""); why != "" {
		t.Errorf("the promise and who it was made to count together: %s", why)
	}
}

// Refusals that nobody logs in time are counted all the same, and hold nobody up.
func TestMoreRefusalsThanAreLogged(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{Log: repeat.New(nil)})
	now := time.Now()
	part.Publish(now, nil, false)
	for i := range 3 * maxTold {
		a.Refuse(now, sandbox(t, "default/p%d bu cpu=2", i), "")
	}
	if s := part.State(true); s.Refused != 3*maxTold || len(part.Told()) != maxTold {
		t.Errorf("%d refused, %d told", s.Refused, len(part.Told()))
	}
}

// A tenant who names resources makes no more reasons than are kept; none is lost.
func TestReasonsAreBounded(t *testing.T) {
	c := &counts{}
	for i := range 1000 {
		c.refuse(fmt.Sprint("OutOfexample.com/", i), false)
	}
	var out api.GateState
	c.fill(&out)
	sum := uint64(0)
	for _, n := range out.Reasons {
		sum += n
	}
	if len(out.Reasons) != maxReasons+1 || sum != 1000 || out.Refused != 1000 {
		t.Errorf("%d reasons of %d", len(out.Reasons), sum)
	}
}

// A quantile is that of all durations, at most a fifth too long, and never longer than the longest.
func TestLatency(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var l latency
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(10*time.Second)), 1, 200).Draw(rt, "durations")
		for _, d := range all {
			l.add(time.Duration(d))
		}
		slices.Sort(all)
		got := l.state()
		for _, c := range []struct {
			q   float64
			got time.Duration
		}{{0.5, got.P50}, {0.99, got.P99}} {
			exact := time.Duration(all[int(math.Ceil(c.q*float64(len(all))))-1])
			if most := max(time.Microsecond, exact*6/5); c.got < exact || c.got > most || c.got > got.Max {
				rt.Fatalf("quantile %v of %v: got %v, it is %v", c.q, all, c.got, exact)
			}
		}
		if got.Count != uint64(len(all)) || got.Max != time.Duration(all[len(all)-1]) {
			rt.Fatalf("%+v of %v", got, all)
		}
	})
	var l latency
	l.add(time.Hour)
	if got := l.state(); got.P50 <= 10*time.Second || got.Max != time.Hour {
		t.Errorf("%+v", got)
	}
	if got := (&latency{}).state(); got != (api.LatencyState{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

// The name of the node is its host's only where this process shares that.
func TestHostname(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	for name, c := range map[string]struct {
		self, first string
		want        string
	}{
		"shared":      {"uts:[1]", "uts:[1]", strings.ToLower(own)},
		"its own":     {"uts:[2]", "uts:[1]", ""},
		"not visible": {"uts:[1]", "", ""},
	} {
		proc := t.TempDir()
		for dir, target := range map[string]string{"self": c.self, "1": c.first} {
			if err := os.MkdirAll(filepath.Join(proc, dir, "ns"), 0o755); err != nil {
				t.Fatal(err)
			}
			if target != "" {
				if err := os.Symlink(target, filepath.Join(proc, dir, "ns/uts")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := Hostname(proc); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAppArmor(t *testing.T) {
	for text, want := range map[string]stats.Opt[bool]{"Y\n": stats.Some(true), "N\n": stats.Some(false), "": stats.Some(false)} {
		sys := t.TempDir()
		if text != "" {
			dir := filepath.Join(sys, "module/apparmor/parameters")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "enabled"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := AppArmor(sys); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := AppArmor(string([]byte{'/', 0})); got.OK {
		t.Errorf("what cannot be read is known: %+v", got)
	}
}

// An object that does not say where it is from is a client's, whose word for a mirror is none.
func TestAClientsObjectIsNoMirror(t *testing.T) {
	for key, want := range map[string]bool{annotationMirror: false, annotationSource: true} {
		p := attributes(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "file"}}})
		if held := admit.HeldBy(p); p.Manifest != want || held.Static != want {
			t.Errorf("%s: manifest %v, static %v", key, p.Manifest, held.Static)
		}
	}
}

// What no number holds is the greatest one: a sum that wraps would be no request at all.
func TestARequestDoesNotWrap(t *testing.T) {
	most, two := uint64(math.MaxUint64), uint64(2)
	got := requested(&cri.PodSandbox{MemoryLimit: &most, Overhead: &two}, stats.Guaranteed)
	if m := got[v1.ResourceMemory]; m.Value() != math.MaxInt64 {
		t.Errorf("%v", m.String())
	}
}

// Without a name of the node, or beside a kubelet, labels are not known, and refuse nobody.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		node    Node
		kubelet bool
		want    string // of the host's name; -: no labels are known
	}{
		{Node{Name: "n"}, false, "n"},
		{Node{}, false, "-"},
		{Node{Configured: map[string]string{"disk": "ssd"}}, false, "-"},
		{Node{Configured: map[string]string{v1.LabelHostname: "m"}}, false, "m"},
		{Node{Name: "n", Configured: map[string]string{v1.LabelHostname: "m"}}, true, "-"},
	} {
		got, known := "-", c.node.state(c.kubelet)
		if known.Labels != nil {
			got = known.Labels[v1.LabelHostname]
		}
		if got != c.want {
			t.Errorf("%+v, kubelet %v: %s", c.node, c.kubelet, got)
		}
	}
}

// The runtime waits for an answer with all that it does: half of the answers take less than a millisecond on a full node. Of a few, the machine
// makes more.
func TestAnAnswerTakesLessThanAMillisecond(t *testing.T) {
	a, part := gate(t, list("10", "10Gi", "111"), Options{})
	fill(t, part, 110)
	part.Publish(time.Now(), nil, false)
	p, took := sandbox(t, "default/another bu cpu=1m"), make([]time.Duration, 501)
	for i := range took {
		began := time.Now()
		why := a.Refuse(began, p, "")
		if took[i] = time.Since(began); why != "" {
			t.Fatal(why)
		}
	}
	if slices.Sort(took); took[len(took)/2] > time.Millisecond {
		t.Errorf("half of the answers take more than %v", took[len(took)/2])
	}
}

// BenchmarkRefuse is what the runtime waits for beside the protocol, with 110 pods and with 1000, each with an object.
func BenchmarkRefuse(b *testing.B) {
	for _, n := range []int{110, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, part := gate(b, list("10", "10Gi", "2000"), Options{})
			store := fill(b, part, n)
			now := time.Now()
			part.Publish(now, nil, false)
			p := sandbox(b, "default/p1 bu")
			if len(store.Snapshot().Objects) != n {
				b.Fatal("no objects")
			}
			b.ReportAllocs()
			for b.Loop() {
				if why := a.Refuse(now, p, ""); why != "" {
					b.Fatal(why)
				}
			}
		})
	}
}

// BenchmarkPublish is what a new snapshot costs the loop, with as many pods.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{110, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, part := gate(b, list("10", "10Gi", "2000"), Options{})
			fill(b, part, n)
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				part.Changed()
				part.Publish(now, nil, false)
			}
		})
	}
}

func fill(b testing.TB, part *Part, n int) *podstore.Store {
	store, l, text := podstore.New(), cri.Listing{}, []string{}
	for i := range n {
		l.Sandboxes = append(l.Sandboxes, *sandbox(b, "default/p%d bu cpu=1m", i))
		text = append(text, fmt.Sprintf(`{"metadata":{"uid":"p%d","namespace":"default","name":"p%d"},"spec":{"containers":[
			{"name":"c","resources":{"requests":{"cpu":"1m","memory":"1Mi"}},"ports":[{"containerPort":80,"hostPort":%d}]}]}}`, i, i, 1000+i))
	}
	if _, _, err := store.Put(strings.NewReader("["+strings.Join(text, ",")+"]"), true, podstore.ByRoot); err != nil {
		b.Fatal(err)
	}
	part.OnPods(read.NewIndex(l))
	part.OnObjects(store.Snapshot())
	return store
}
