package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/admit"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate returns a gate on a node with the given allocatable resources.
func gate(t testing.TB, allocatable v1.ResourceList, o Options) (*Admission, *Part) {
	t.Helper()
	a := New(policy)
	o.Capacity = func() v1.ResourceList { return allocatable }
	o.Allocatable = func(c v1.ResourceList) v1.ResourceList { return c }
	if o.Evictions == nil {
		o.Evictions = func(time.Time) (ending, undying map[string]bool) { return nil, nil }
	}
	if o.HeldOff == nil {
		o.HeldOff = func(time.Time, *v1.Pod) (string, bool) { return "", false }
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

// Before the first snapshot the gate admits each pod, and clients get an error.
func TestUnknownNodeAdmitsPods(t *testing.T) {
	a, part := gate(t, nil, Options{})
	if why := a.Reject(time.Now(), sandbox(t, "default/p be"), ""); why != "" {
		t.Errorf("refusal before the first snapshot = %q, want none", why)
	}
	if _, err := a.Ask(t.Context(), &v1.Pod{}, podstore.ByRoot); !errors.Is(err, ErrUnknown) {
		t.Errorf("client's decision before the first snapshot: error %v, want ErrUnknown", err)
	}
	if s := part.State(false); s.Unknown != 1 || s.Enforced || s.Asked {
		t.Errorf("state of the gate = %+v, want one unknown, neither enforced nor asked", s)
	}
}

// However turns of the loop and requests interleave, the running admitted pods never hold more than
// the node has.
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
				r := podindex.CPURequest(p.CPUShares)
				sum := 0
				for _, v := range running {
					sum += v
				}
				fits := sum+int(r.V.Min) <= cpu && len(running) < pods
				why := a.Reject(now, p, "")
				if (why == "") != fits {
					rt.Fatalf("pod requesting %d of %d while %v run: refusal %q, want one: %v", r.V.Min, cpu, running, why, !fits)
				}
				if why == "" {
					running[name], asked[name] = int(r.V.Min), milli
				} else {
					refused++
				}
			case 3: // the loop sees some of the pods, and all that it saw before
				learn(func(name string) bool { return part.index[name] != nil || rapid.Bool().Draw(rt, "listed") })
			case 4: // a pod ends, and the loop sees that
				if names := slices.Sorted(maps.Keys(running)); len(names) > 0 {
					gone := rapid.SampledFrom(names).Draw(rt, "ends")
					delete(running, gone)
					a.SandboxRemoved(gone)
					learn(func(name string) bool { return part.index[name] != nil })
				}
			}
		}
		if got := part.State(true); int(got.Refused) != refused {
			rt.Fatalf("counted %d refused pods, want %d", got.Refused, refused)
		}
	})
}

// A turn of the loop without changes allocates nothing and keeps the snapshot.
func TestPublishWithoutChange(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{})
	now, conditions := time.Now(), []eviction.Condition{"MemoryPressure"}
	part.Publish(now, conditions, false)
	before := a.snapshot.Load()
	if n := testing.AllocsPerRun(100, func() { part.Publish(now, conditions, false) }); n != 0 {
		t.Errorf("Publish without a change made %v allocations, want 0", n)
	}
	if a.snapshot.Load() != before {
		t.Error("Publish without a change replaced the snapshot")
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
			t.Errorf("no new snapshot after a change of %s", c.what)
		}
	}
}

// The node's capacity is read again after capacityInterval, not at each change.
func TestCapacityInterval(t *testing.T) {
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
		t.Errorf("capacity was read %d times in one interval, want once", read)
	}
	part.Changed()
	part.Publish(now.Add(capacityInterval), nil, false)
	if q := a.snapshot.Load().Node.Allocatable[v1.ResourcePods]; q.Value() != 2 {
		t.Errorf("allocatable pods after capacityInterval = %v, want 2", q.Value())
	}
}

// Concurrent requests use consistent snapshots while the loop publishes. The race detector checks
// the rest.
func TestConcurrentRequests(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{})
	part.Publish(time.Now(), nil, false)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				name := fmt.Sprintf("p%d-%d", i, j)
				a.Reject(time.Now(), sandbox(t, "default/%s bu cpu=1m", name), "")
				if _, err := a.Ask(context.Background(), &v1.Pod{}, podstore.ByMember); err != nil {
					t.Error(err)
				}
				a.SandboxRemoved(name)
				a.RecordAnswer(time.Millisecond, j%2 == 0)
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
		t.Errorf("counts after 800 requests of which 400 were held off = %+v", s)
	}
}

// A killed, dead pod holds no resources although the runtime still lists it. A pod that came back
// under its UID does.
func TestDeadPodHoldsNothing(t *testing.T) {
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
			t.Errorf("dead sandboxes %v: %d pods hold resources (%v), want %d", test.sandboxes, len(n.Pods), err, test.held)
		}
	}
}

// Of too many admitted pods the newest are kept, in one slice that does not grow.
func TestAdmittedPodsAreBounded(t *testing.T) {
	var l admittedPods
	now := time.Now()
	for i := range 3 * maxAdmitted {
		l.keep(now, admit.Held{UID: types.UID(fmt.Sprint(i))})
	}
	if last := l[len(l)-1]; len(l) != maxAdmitted || last.pod.UID != types.UID(fmt.Sprint(3*maxAdmitted-1)) {
		t.Errorf("%d admitted pods are kept, want %d; the last is %s", len(l), maxAdmitted, last.pod.UID)
	}
}

// Reserved resources are unavailable to all pods except the pod of the reservation.
func TestPromises(t *testing.T) {
	promised := []admit.Held{{UID: "p", Requests: admit.Amounts{v1.ResourceCPU: 800}}}
	a, part := gate(t, list("1", "1Gi", "10"), Options{Reservations: func(time.Time) []admit.Held { return promised }})
	now := time.Now()
	part.Publish(now, nil, false)
	for line, in := range map[string]bool{"default/other bu cpu=300m": false, "default/p bu cpu=900m": true} {
		if why := a.Reject(now, sandbox(t, "%s", line), ""); (why == "") != in {
			t.Errorf("%s: refusal %q, want admitted: %v", line, why, in)
		}
	}
	// An admitted pod counts once: its promise does not count in addition.
	if why := a.Reject(now, sandbox(t, "default/other bu cpu=150m"), ""); why != "" {
		t.Errorf("promise and admitted pod are counted twice: %s", why)
	}
}

// The runtime waits for each answer: on a full node the median is below a millisecond. The slowest
// answers depend on the machine.
func TestMedianAnswerTime(t *testing.T) {
	a, part := gate(t, list("10", "10Gi", "111"), Options{})
	fill(t, part, 110)
	part.Publish(time.Now(), nil, false)
	p, took := sandbox(t, "default/another bu cpu=1m"), make([]time.Duration, 501)
	for i := range took {
		began := time.Now()
		why := a.Reject(began, p, "")
		if took[i] = time.Since(began); why != "" {
			t.Fatal(why)
		}
	}
	if slices.Sort(took); took[len(took)/2] > time.Millisecond {
		t.Errorf("median answer took %v, want at most 1ms", took[len(took)/2])
	}
}

// BenchmarkReject measures the time that the runtime waits, without the protocol, for numbers of
// pods that each have an object.
func BenchmarkReject(b *testing.B) {
	for _, n := range []int{2, 110, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, part := gate(b, list("10", "10Gi", "2000"), Options{})
			store := fill(b, part, n)
			now := time.Now()
			part.Publish(now, nil, false)
			p := sandbox(b, "default/p1 bu")
			if len(store.Snapshot().Objects) != n {
				b.Fatal("the store lacks objects")
			}
			b.ReportAllocs()
			for b.Loop() {
				if why := a.Reject(now, p, ""); why != "" {
					b.Fatal(why)
				}
			}
		})
	}
}

// BenchmarkPublish measures the cost of a new snapshot for the same numbers of pods.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{2, 110, 1000} {
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
