package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"jettison/cgroup"
	"jettison/stats"
)

func never() bool  { return false }
func always() bool { return true }

func (n *node) writer(kubelet func() bool) *Writer {
	return &Writer{FS: n.fs, Kubelet: kubelet}
}

func (n *node) expect(what string, want map[string]string) {
	n.Helper()
	if diff := cmp.Diff(want, n.differs()); diff != "" {
		n.Errorf("%s: (-want +got)\n%s", what, diff)
	}
}

var all = Targets{MemoryMax: some(7 << 30), PIDsMax: some(30000), CPUWeight: some(149)}

// The cgroup above all pods gets its limits, with either driver, and no other cgroup does. Another
// process can restore the previous values.
func TestLimit(t *testing.T) {
	for _, root := range []string{"kubepods", "kubepods.slice"} {
		n := newNode(t, root, "kubepods/burstable/poda", "system.slice")
		if root == "kubepods.slice" {
			n = newNode(t, "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice", "system.slice")
		}
		made := n.differs()
		for range 2 {
			if r := n.writer(never).Limit(t.Context(), all); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		n.expect(root, map[string]string{root + " memory.max": "7516192768", root + " pids.max": "30000", root + " cpu.weight": "149"})
		if r := n.writer(never).Undo(t.Context(), true, false); r.Err != nil || r.Restored != 3 {
			t.Errorf("restore of the limits: result %+v", r)
		}
		n.expect(root+", put back", made)
		if left := n.notes(); len(left) > 0 {
			t.Errorf("notes after the restore = %v, want none", left)
		}
	}
}

// Only known limits are written, a second pass writes nothing, and a node without pod cgroups is
// left alone.
func TestLimitWritesOnlyChanges(t *testing.T) { synctest.Test(t, limitWritesOnlyChanges) }

func limitWritesOnlyChanges(t *testing.T) {
	n := newNode(t, "kubepods")
	looked := 0
	w := n.writer(func() bool { looked++; return false })
	if r := w.Limit(t.Context(), Targets{}); len(r.Limited) > 0 || r.Err != nil || looked > 0 {
		t.Errorf("pass without targets: result %+v, %d searches for a kubelet", r, looked)
	}
	if r := w.Limit(t.Context(), all); len(r.Limited) != 3 || r.Err != nil || looked != 1 {
		t.Errorf("first pass: result %+v, %d searches for a kubelet", r, looked)
	}
	if r := w.Limit(t.Context(), all); len(r.Limited) > 0 || r.Err != nil || looked != 1 {
		t.Errorf("second pass: result %+v, %d searches for a kubelet, want no write", r, looked)
	}
	if r := newNode(t).writer(never).Limit(t.Context(), all); len(r.Limited) > 0 || r.Err != nil {
		t.Errorf("pass on a node without pods: result %+v", r)
	}
}

// If pods use more than the target, the limit follows their usage down.
func TestLimitIsNeverBelowWhatIsUsed(t *testing.T) {
	n := newNode(t, "kubepods")
	max := func() string { return n.differs()["kubepods memory.max"] }
	use := func(bytes int) { n.write("kubepods/memory.current", fmt.Sprintln(bytes)) }
	for _, step := range []struct {
		used int
		want uint64
	}{
		{8000 * mib, 8410 * mib}, {8300 * mib, 8410 * mib}, {7680 * mib, 8080 * mib}, {7 << 30, 7552 * mib}, {7<<30 - 32*mib + 1, 7519 * mib}, {7<<30 - 32*mib, 7 << 30},
		{7 << 30, 7 << 30},
	} {
		use(step.used)
		r := n.writer(never).Limit(t.Context(), Targets{MemoryMax: some(7 << 30)})
		if r.Err != nil || max() != fmt.Sprint(step.want) {
			t.Errorf("with %d MiB used, memory.max = %s, want %d, error %v", step.used/mib, max(), step.want, r.Err)
		}
	}
	use(8 << 30)
	n.write("kubepods/memory.max", fmt.Sprintln(8<<30))
	looked := func() bool { t.Error("searched for a kubelet although nothing is to be written"); return false }
	if r := n.writer(looked).Limit(t.Context(), Targets{MemoryMax: some(7 << 30)}); r.Err != nil || len(r.Limited) > 0 {
		t.Errorf("limit as near as possible: result %+v, want no write", r)
	}
	n.write("kubepods/memory.max", fmt.Sprintln(7<<30))
	use(1 << 30)
	if r := n.writer(never).Undo(t.Context(), true, false); r.Err != nil || max() != "" {
		t.Errorf("memory.max after the restore = %s, error %v", max(), r.Err)
	}
}

// Memory that pods allocate during the search for a kubelet counts.
func TestPodsGrowDuringSearch(t *testing.T) {
	n := newNode(t, "kubepods")
	n.writer(func() bool { n.write("kubepods/memory.current", fmt.Sprintln(8000*mib)); return false }).Limit(t.Context(), all)
	if got := n.differs()["kubepods memory.max"]; got != fmt.Sprint(8410*mib) {
		t.Errorf("memory.max = %s, want it above the usage after the search", got)
	}
}

// A kubelet writes its own limits: with one, nothing is written or restored.
func TestNothingIsLimitedBesideAKubelet(t *testing.T) {
	n := newNode(t, "kubepods")
	if r := n.writer(always).Limit(t.Context(), all); !r.KubeletFound || len(r.Limited) > 0 || r.Err != nil {
		t.Errorf("limit with a kubelet: result %+v", r)
	}
	n.expect("beside a kubelet", map[string]string{})
	if left := n.notes(); len(left) > 0 {
		t.Errorf("notes with a kubelet = %v", left)
	}
	n.writer(never).Limit(t.Context(), all)
	was := n.differs()
	if r := Restore(t.Context(), n.fs, "", false, always, nil); r.Restored > 0 || r.Err != nil {
		t.Errorf("restore with a kubelet: result %+v", r)
	}
	n.expect("limits that are the kubelet's by now", was)
	if r := Restore(t.Context(), n.fs, "", true, never, nil); r.Restored > 0 || r.Err != nil {
		t.Errorf("restore while limits are enabled: result %+v", r)
	}
	n.expect("limits that are still to be", was)
	if r := Restore(t.Context(), n.fs, "", false, never, nil); r.Restored != 3 || r.Err != nil {
		t.Errorf("restore without a kubelet: result %+v", r)
	}
	n.expect("limits that nobody wants any more", map[string]string{})
}

// A previous limit below usage is not restored, because that would kill.
func TestNoRestoreBelowUsage(t *testing.T) {
	n := newNode(t, "kubepods")
	n.write("kubepods/memory.max", "2147483648\n")
	n.writer(never).Limit(t.Context(), all)
	n.write("kubepods/memory.current", "5368709120\n")
	r := n.writer(never).Undo(t.Context(), true, false)
	if r.Err == nil || !strings.Contains(r.Err.Error(), "memory.max of /kubepods not restored to 2147483648: pods use 5368709120") {
		t.Errorf("restore below usage: error %v, want one with the values", r.Err)
	}
	if got := n.differs()["kubepods memory.max"]; got != "7516192768" {
		t.Errorf("memory.max after the failed restore = %s", got)
	}
	n.write("kubepods/memory.current", "1048576\n")
	if r := n.writer(never).Undo(t.Context(), true, false); r.Err != nil || n.differs()["kubepods memory.max"] != "2147483648" {
		t.Errorf("restore above usage: result %+v, files that differ %v", r, n.differs())
	}
}

// A controller that is not enabled is an error, and the other limits are written.
func TestMissingController(t *testing.T) {
	n := newNode(t, "kubepods")
	if err := os.Remove(filepath.Join(n.dir, "kubepods/pids.max")); err != nil {
		t.Fatal(err)
	}
	r := n.writer(never).Limit(t.Context(), all)
	if !errors.Is(r.Err, os.ErrNotExist) || !strings.Contains(r.Err.Error(), "its controller is not enabled in /kubepods") || len(r.Limited) != 2 {
		t.Errorf("missing controller: result %+v, want an error and the other limits", r)
	}
}

// Systemd is updated last, with the values of its slices only.
func TestSystemdSlices(t *testing.T) {
	const burstable = "kubepods.slice/kubepods-burstable.slice"
	n := newNode(t, burstable+"/kubepods-burstable-poda.slice/cri-containerd-a-c.scope", "kubepods")
	var told []Unit
	w := n.writer(never)
	w.Tell = func(_ context.Context, units []Unit, took func(Unit)) error {
		for _, u := range units {
			took(u)
		}
		told = append(told, units...)
		return nil
	}
	w.Limit(t.Context(), all)
	if len(told) != 1 || told[0].Name != "kubepods.slice" || told[0].Files[cgroup.FileMemoryMax] != (cgroup.Limit{Bytes: 7 << 30}) ||
		told[0].Files[cgroup.FileMemoryHigh] != (cgroup.Limit{Unlimited: true}) || len(told[0].Files) != len(propertyOf) {
		t.Errorf("units sent to systemd = %+v", told)
	}
	told = nil
	known := Known{Objects: []*v1.Pod{object("a", "c 10Mi 20Mi")}, Runtime: runs(map[string][]string{"a": {"c"}})}
	w.Protect(t.Context(), known, Budget{Allocatable: 7 << 30, Factor: 0.9, Page: 4096})
	var names []string
	for _, u := range told {
		names = append(names, u.Name)
	}
	if want := []string{"kubepods.slice", "kubepods-burstable.slice", "kubepods-burstable-poda.slice"}; !slices.Equal(names, want) {
		t.Errorf("names of units sent to systemd = %v", names)
	}
	w.Tell = func(context.Context, []Unit, func(Unit)) error { return errors.New("no bus") }
	if r := w.Undo(t.Context(), false, true); r.Err == nil || r.Restored == 0 || !strings.Contains(r.Err.Error(), "update slices of systemd: no bus") {
		t.Errorf("unreachable systemd: result %+v, want an error", r)
	}
}

// protected returns a node with a pod of each class.
func protected(t testing.TB) (*node, Known, Budget) {
	n := newNode(t, "kubepods/poda/a-c", "kubepods/burstable/podb/b-c", "kubepods/burstable/podb/s-b", "kubepods/besteffort/podd/d-c", "kubepods/burstable/pode/e-c")
	n.start("kubepods/poda/a-c/memory.max", "104857600")
	n.start("kubepods/burstable/podb/b-c/memory.max", "157286400")
	return n, Known{
		Objects: []*v1.Pod{object("a", "c 100Mi 100Mi"), object("b", "c 50Mi 150Mi"), object("d", "c  ")},
		Runtime: runs(map[string][]string{"a": {"c"}, "b": {"c"}, "d": {"c"}, "e": {"c"}}),
	}, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096}
}

// Requested memory is protected in the cgroups of pods and above. When a pod ends, or its request
// becomes unknown, its share is removed. Another process restores everything.
func TestProtect(t *testing.T) {
	n, known, budget := protected(t)
	r := n.writer(never).Protect(t.Context(), known, budget)
	if r.Err != nil || r.Pods != 4 || r.Skipped.Unknown != 1 || r.Written != 9 {
		t.Errorf("result of the first protection = %+v", r)
	}
	const mi50, mi100 = "52428800", "104857600"
	whole := map[string]string{
		"kubepods memory.min": mi100, "kubepods memory.low": mi50, "kubepods/poda memory.min": mi100, "kubepods/poda/a-c memory.min": mi100,
		"kubepods/burstable memory.low": mi50, "kubepods/burstable/podb memory.low": mi50, "kubepods/burstable/podb/b-c memory.low": mi50,
		"kubepods/burstable/podb/b-c memory.high": "146800640", "kubepods/besteffort/podd/d-c memory.high": "943718400",
	}
	n.expect("protected", whole)
	if r := n.writer(never).Protect(t.Context(), known, budget); r.Written+r.Restored > 0 || r.Err != nil {
		t.Errorf("second protection: result %+v, want no write", r)
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "kubepods/poda")); err != nil {
		t.Fatal(err)
	}
	n.writer(never).Protect(t.Context(), known, budget)
	delete(whole, "kubepods memory.min")
	delete(whole, "kubepods/poda memory.min")
	delete(whole, "kubepods/poda/a-c memory.min")
	n.expect("the Guaranteed pod is gone", whole)
	known.Objects, known.Runtime = nil, nil
	if r := n.writer(never).Protect(t.Context(), known, budget); r.Restored != 6 || r.Skipped.Unknown != 2 || r.Err != nil {
		t.Errorf("protection without objects: result %+v", r)
	}
	n.expect("nobody tells of pods", map[string]string{})
	if left := n.notes(); len(left) > 0 {
		t.Errorf("notes after the restore = %v, want none", left)
	}
}

// An object of a member of the socket's group sets nothing that runtime and kernel do not confirm.
func TestMemberClaimsMoreThanRuntimeConfirms(t *testing.T) {
	n := newNode(t, "kubepods/podv/v-c", "kubepods/burstable/podw/w-c")
	n.start("kubepods/podv/v-c/memory.current", fmt.Sprint(4<<30))
	n.start("kubepods/burstable/podw/w-c/memory.current", fmt.Sprint(4<<30))
	known := Known{
		Objects: []*v1.Pod{object("v", "c 1Mi 2Mi", "ghost 7Gi "), object("w", "c 1Mi 2Mi", "ghost 7Gi ")},
		Members: map[string]bool{"v": true, "w": true},
		Runtime: runs(map[string][]string{"v": {"c"}, "w": {"c"}}), Capacity: some(8 << 30),
	}
	r := n.writer(never).Protect(t.Context(), known, Budget{Allocatable: 7 << 30, Factor: 0.9, Page: 4096})
	if r.Err != nil || r.Written > 0 {
		t.Errorf("protection by a member's objects = %+v, want no write", r)
	}
	n.expect("files after the objects of a member", map[string]string{})
}

// No memory.high is written below the memory that the container uses, and none that is computed
// from a limit that the container does not have, for any object.
func TestThrottlingNeedsLimitAndRoom(t *testing.T) {
	const high = "kubepods/burstable/podb/b-c memory.high"
	for name, c := range map[string]struct {
		max     string // memory.max of the container
		current int
		want    string
	}{
		"little used":           {"157286400", 100 * mib, "146800640"},
		"an eighth below":       {"157286400", 120 * mib, "146800640"},
		"usage near":            {"157286400", 130 * mib, ""},
		"usage above":           {"157286400", 149 * mib, ""},
		"no limit":              {"max", 10 * mib, ""},
		"another limit":         {"4294967296", 10 * mib, ""},
		"no limit, usage above": {"max", 4096 * mib, ""},
	} {
		n, known, budget := protected(t)
		n.start("kubepods/burstable/podb/b-c/memory.max", c.max)
		n.start("kubepods/burstable/podb/b-c/memory.current", fmt.Sprint(c.current))
		r := n.writer(never).Protect(t.Context(), known, budget)
		if got := n.differs()[high]; got != c.want || r.Err != nil {
			t.Errorf("%s: memory.high = %q, error %v, want %q", name, got, r.Err, c.want)
		}
	}
}

// Values of other writers are combined with the agent's and are restored at the end, including
// those of package selfprotect.
func TestProtectWithOtherWriters(t *testing.T) {
	n, known, budget := protected(t)
	n.write("kubepods/memory.min", "50331648\n")
	n.write("kubepods/poda/memory.min", "209715200\n")
	n.write("kubepods/burstable/podb/b-c/memory.high", "4194304\n")
	n.write("kubepods/burstable/memory.low", "max\n")
	made := n.differs()
	for range 2 {
		n.writer(never).Protect(t.Context(), known, budget)
	}
	got := n.differs()
	for at, want := range map[string]string{
		"kubepods memory.min": "155189248", "kubepods/poda memory.min": "209715200", "kubepods/burstable/podb/b-c memory.high": "4194304",
		"kubepods/burstable memory.low": "max",
	} {
		if got[at] != want {
			t.Errorf("value of %s = %s, want %s", at, got[at], want)
		}
	}
	if r := n.writer(never).Undo(t.Context(), false, true); r.Err != nil {
		t.Errorf("restore: error %v, want none", r.Err)
	}
	n.expect("put back", made)
}

// A pod with a smaller request gets another writer's value back, and the note is removed.
func TestSmallerRequest(t *testing.T) {
	n, known, budget := protected(t)
	n.write("kubepods/poda/memory.min", "83886080\n")
	made := n.differs()
	n.writer(never).Protect(t.Context(), known, budget)
	if got := n.differs()["kubepods/poda memory.min"]; got != "104857600" {
		t.Errorf("memory.min = %s, want the larger request", got)
	}
	known.Objects = []*v1.Pod{object("a", "c 60Mi 60Mi")}
	n.writer(never).Protect(t.Context(), known, budget)
	if got, notes := n.differs()["kubepods/poda memory.min"], n.notes(); got != "83886080" || slices.Contains(notes, "kubepods/poda memory.min") {
		t.Errorf("memory.min = %s, notes %v, want the other writer's value and no note", got, notes)
	}
	n.writer(never).Undo(t.Context(), false, true)
	n.expect("put back", made)
}

// slow is the context of a pass in which each cgroup takes a while, because the kernel reclaims.
type slow struct {
	context.Context
	takes time.Duration
}

func (s slow) Err() error { time.Sleep(s.takes); return s.Context.Err() }

// A long pass searches for a kubelet repeatedly, but not all the time, and writes nothing after it
// found one.
func TestKubeletStartsDuringPass(t *testing.T) {
	for _, c := range []struct {
		each, search   time.Duration
		looks, written int
	}{
		{0, 0, 1, 9}, {time.Second, 0, 2, 1}, {time.Second, time.Minute, 1, 9}, {time.Second, 3 * time.Second, 2, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, known, budget := protected(t)
			looks := 0
			w := n.writer(func() bool { looks++; time.Sleep(c.search); return looks > 1 })
			r := w.Protect(slow{t.Context(), c.each}, known, budget)
			if looks != c.looks || r.Written != c.written || r.KubeletFound != (looks > 1) || r.Err != nil {
				t.Errorf("with %v per write and %v per search, searches = %d, result %+v", c.each, c.search, looks, r)
			}
		})
	}
}

// A pass with an ended context writes nothing more.
func TestPassWithEndedContext(t *testing.T) {
	n, known, budget := protected(t)
	ctx, end := context.WithCancel(t.Context())
	w := n.writer(func() bool { end(); return false })
	if r := w.Limit(ctx, all); len(r.Limited) > 0 {
		t.Errorf("limit with an ended context: result %+v", r)
	}
	if r := w.Protect(ctx, known, budget); r.Written > 0 || !errors.Is(r.Err, context.Canceled) || !strings.Contains(r.Err.Error(), "pod cgroups not processed") {
		t.Errorf("protect with an ended context: result %+v", r)
	}
	n.expect("nothing", map[string]string{})
}

func TestNoProtectionWithKubelet(t *testing.T) {
	n, known, budget := protected(t)
	if r := n.writer(always).Protect(t.Context(), known, budget); !r.KubeletFound || r.Written > 0 || r.Err != nil {
		t.Errorf("protect with a kubelet: result %+v", r)
	}
	n.expect("beside a kubelet", map[string]string{})
}

// cut is a context that ends after a number of calls.
type cut struct {
	context.Context
	left int
}

func (c *cut) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// After passes that end anywhere, while pods start, end and change, and with a new process each
// time, a restore returns the node to its initial state.
func TestRestoreAfterRandomPasses(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		n, known, budget := protected(t)
		made, objects := n.differs(), known.Objects
		highs := map[string]uint64{}
		for range 1 + random.IntN(5) {
			for _, path := range []string{"kubepods/poda/a-c", "kubepods/burstable/podb/b-c"} {
				n.start(path+"/memory.current", fmt.Sprint(random.IntN(200)*mib))
			}
			ctx := &cut{t.Context(), random.IntN(60)}
			known.Objects = objects[:random.IntN(len(objects)+1)]
			budget.Allocatable = random.Uint64N(300) * mib
			w := n.writer(func() bool { return random.IntN(5) == 0 })
			w.Protect(ctx, known, budget)
			highs = n.checkHighs(highs)
			w.Limit(ctx, Targets{MemoryMax: stats.Some(budget.Allocatable + 64*mib)})
		}
		mended := Restore(t.Context(), n.fs, "", false, never, nil)
		if diff := cmp.Diff(made, n.differs()); diff != "" || mended.Err != nil || len(n.notes()) > 0 {
			t.Fatalf("with seed %d, notes after the restore = %v, error %v, (-want +got)\n%s", seed, n.notes(), mended.Err, diff)
		}
	}
}

// checkHighs fails if a memory.high was lowered to less than its container uses. last are the values
// before the pass. It returns those after it.
func (n *node) checkHighs(last map[string]uint64) map[string]uint64 {
	n.Helper()
	next := map[string]uint64{}
	for name, text := range n.differs() {
		path, file, _ := strings.Cut(name, " ")
		if file != "memory.high" {
			continue
		}
		high, err := strconv.ParseUint(text, 10, 64)
		used, _ := strconv.ParseUint(n.initial[path+"/memory.current"], 10, 64)
		if before, has := last[path]; err != nil || (!has || high < before) && high < used {
			n.Errorf("memory.high of %s = %s with %d used, error %v", path, text, used, err)
		}
		next[path] = high
	}
	return next
}
