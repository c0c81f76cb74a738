package limits

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/cgroupundo"
)

func TestMain(m *testing.M) {
	if size := os.Getenv(holdVariable); size != "" {
		hold(size)
	}
	goleak.VerifyTestMain(m)
}

// partOf is one on a node, and what it logs.
func partOf(n *node, known Known, change func(*Options)) (*Part, *bytes.Buffer) {
	var text bytes.Buffer
	o := Options{
		FS: n.fs, Allocatable: true, MemoryQoS: true, Factor: 0.9, Kubelet: never, Objects: func() []*v1.Pod { return known.Objects },
		Node: func() Node {
			left := list("memory", "7Gi", "cpu", "3800m")
			return Node{Capacity: list("memory", "8Gi", "cpu", "4"), Enforced: left, Left: left}
		},
		Log: logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))),
	}
	if change != nil {
		change(&o)
	}
	return New(o), &text
}

// Passes come one at a time and now and then; what they write is said; at the end protection is put back, and limits stay.
func TestPart(t *testing.T) {
	n, known, _ := protected(t)
	p, text := partOf(n, known, nil)
	now := time.Now()
	p.Tick(t.Context(), now, false, known.Runtime)
	p.Tick(t.Context(), now.Add(Every), false, known.Runtime) // the first was not taken yet
	p.OnResult(<-p.Results())
	got := n.differs()
	if got["kubepods memory.max"] != "7516192768" || got["kubepods cpu.weight"] != "149" || got["kubepods memory.min"] != "104857600" {
		t.Errorf("%v", got)
	}
	for _, want := range []string{
		`msg="node allocatable" cgroup=kubepods file=memory.max from=max to=7516192768`, `msg="memory that pods request" pods=4 unknown=1 written=8 restored=0`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("not said: %s\n%s", want, text)
		}
	}
	text.Reset()
	if p.Tick(t.Context(), now.Add(Every-1), false, known.Runtime); p.running {
		t.Error("so soon again")
	}
	p.Tick(t.Context(), now.Add(Every), false, known.Runtime)
	if p.OnResult(<-p.Results()); text.Len() > 0 {
		t.Errorf("nothing was done: %s", text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	n.expect("closed", map[string]string{"kubepods memory.max": "7516192768", "kubepods cpu.weight": "149"})
}

// Beside a kubelet what is protected is put back, once, limits are left to it, and nothing is written; after it all of it comes back.
func TestPartBesideAKubelet(t *testing.T) {
	n, known, _ := protected(t)
	var kubelet atomic.Bool
	p, text := partOf(n, known, func(o *Options) { o.Kubelet = kubelet.Load })
	now := time.Now()
	pass := func(beside, want bool) {
		t.Helper()
		now = now.Add(Every)
		p.Tick(t.Context(), now, beside, known.Runtime)
		if p.running != want {
			t.Errorf("a pass: %v, want %v", p.running, want)
		}
		if p.running {
			p.OnResult(<-p.Results())
		}
	}
	limits := map[string]string{"kubepods memory.max": "7516192768", "kubepods cpu.weight": "149"}
	pass(true, false)
	n.expect("it was there first", map[string]string{})
	pass(false, true)
	whole := n.differs()
	pass(true, true)
	pass(true, false)
	n.expect("it has come", limits)
	pass(false, true)
	n.expect("it has gone", whole)
	kubelet.Store(true) // and the loop has not heard of it
	pass(false, true)
	n.expect("nothing has to be written, and nobody looks", whole)
	p.o.Objects = func() []*v1.Pod { return []*v1.Pod{object("a", "c 10Mi 10Mi")} }
	pass(false, true)
	n.expect("it is seen right before something is written", limits)
	if !strings.Contains(text.String(), "a kubelet has come") {
		t.Error(text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A part that may write nothing does not, nor does one that is none.
func TestPartThatMayWriteNothing(t *testing.T) {
	n, known, _ := protected(t)
	p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.MemoryQoS = false, false })
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	if p.running {
		t.Error("a pass")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	n.expect("nothing", map[string]string{})
	p = nil
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	if err := p.Close(); err != nil || p.Results() != nil {
		t.Error(err)
	}
}

// What an agent before this one has left is put back as soon as no kubelet is here, whenever that is, further and further apart where it
// cannot be, and then never again.
func TestWhatIsLeftIsPutBackInTheEnd(t *testing.T) {
	n, known, budget := protected(t)
	n.writer(never).Limit(t.Context(), all)
	n.writer(never).Protect(t.Context(), known, budget)
	mended := n.writer(always).Undo(&cut{t.Context(), 0}, true, true)
	if mended.Left != (Left{Limits: true, Protection: true}) || mended.Restored > 0 {
		t.Fatalf("%+v", mended)
	}
	kubelet := true
	p, text := partOf(n, known, func(o *Options) {
		o.Allocatable, o.MemoryQoS, o.Left, o.Kubelet = false, false, mended.Left, func() bool { return kubelet }
	})
	now := time.Now()
	pass := func(after time.Duration, beside, want bool) {
		t.Helper()
		now = now.Add(after)
		if p.Tick(t.Context(), now, beside, known.Runtime); p.running != want {
			t.Errorf("a pass: %v, want %v", p.running, want)
		}
		if p.running {
			p.OnResult(<-p.Results())
		}
	}
	limits := map[string]string{"kubepods memory.max": "7516192768", "kubepods pids.max": "30000", "kubepods cpu.weight": "149"}
	pass(0, true, true)
	n.expect("beside a kubelet", limits)
	pass(Every, true, false)
	for wait := time.Duration(0); wait < mostWait; wait = min(max(2*wait, Every), mostWait) {
		pass(wait, false, true) // the loop has not heard of it
		pass(max(wait, Every/2)-1, false, false)
		now = now.Add(1 - max(wait, Every/2))
	}
	n.expect("one is seen right before", limits)
	kubelet = false
	pass(mostWait, false, true)
	n.expect("it has gone", map[string]string{})
	pass(mostWait, false, false)
	if left := n.notes(); len(left) > 0 || strings.Count(text.String(), `msg="put back what was written to cgroups of pods" restored=3`) != 1 {
		t.Errorf("noted: %v\n%s", left, text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Systemd that did not answer when limits were put back is told again, and what it sets back meanwhile is put back again.
func TestSystemdIsToldByALaterPass(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{}
	(&Writer{FS: n.fs, Kubelet: never, Tell: s.tell}).Limit(t.Context(), all)
	s.down = errors.New("no bus")
	mended := Mend(t.Context(), n.fs, "", false, never, s.tell)
	p, _ := partOf(n, Known{}, func(o *Options) {
		o.Allocatable, o.MemoryQoS, o.Left, o.Tell = false, false, mended.Left, s.tell
	})
	now := time.Now()
	pass := func() {
		t.Helper()
		if p.Tick(t.Context(), now, false, nil); !p.running {
			t.Fatal("no pass")
		}
		p.OnResult(<-p.Results())
		now = now.Add(mostWait)
	}
	for range 3 {
		pass()
	}
	s.reload(n, "kubepods.slice")
	s.down, p.writer.refused = nil, time.Time{}
	pass()
	n.expect("told", map[string]string{})
	if left := n.notes(); len(left)+len(n.owed("kubepods.slice")) > 0 || !s.has["kubepods.slice"][cgroup.FileMemoryMax].Unlimited {
		t.Errorf("noted %v, told %v", left, s.has)
	}
	if p.Tick(t.Context(), now.Add(mostWait), false, nil); p.running {
		t.Error("one more pass")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Each of the two is written without the other.
func TestPartOfOneKind(t *testing.T) {
	for _, limits := range []bool{true, false} {
		n, known, _ := protected(t)
		p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.MemoryQoS = limits, !limits })
		p.Tick(t.Context(), time.Now(), false, known.Runtime)
		p.OnResult(<-p.Results())
		got := n.differs()
		if _, limited := got["kubepods memory.max"]; limited != limits {
			t.Errorf("limits %v: %v", limits, got)
		}
		if _, protected := got["kubepods memory.min"]; protected == limits {
			t.Errorf("limits %v: %v", limits, got)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Where pods are not held to what is left for them, a container without a limit is throttled by it all the same.
func TestThrottledByWhatIsLeft(t *testing.T) {
	n, known, _ := protected(t)
	known.Objects = []*v1.Pod{object("b", "c 1Gi ")}
	p, _ := partOf(n, known, func(o *Options) {
		o.Node = func() Node { return Node{list("memory", "16Gi"), list("memory", "16Gi"), list("memory", "12Gi")} }
	})
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	p.OnResult(<-p.Results())
	got := n.differs()
	if got["kubepods/burstable/podb/b-c memory.high"] != "11703783424" || got["kubepods memory.max"] != "17179869184" {
		t.Error(got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A pass that the kernel holds does not hold up the end of the agent for long: it is left behind.
func TestAPassThatHangsIsLeftBehind(t *testing.T) {
	n, known, _ := protected(t)
	hang := make(chan struct{})
	p, _ := partOf(n, known, func(o *Options) { o.Kubelet = func() bool { <-hang; return true } })
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	began := time.Now()
	err := p.Close()
	if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	close(hang)
	p.passing.Wait()
	n.expect("nothing was written", map[string]string{})
}

// What is wrong is said once.
func TestWhatIsWrongIsNotRepeated(t *testing.T) {
	n, known, _ := protected(t)
	p, text := partOf(n, known, nil)
	for range 3 {
		p.OnResult(Result{Err: errors.New("out of order")})
	}
	if strings.Count(text.String(), "out of order") != 1 {
		t.Error(text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A search for a kubelet that takes all the time of the start holds up limits alone: what protects pods is put back, and nothing is said
// to be left of it.
func TestASearchThatTakesLongHoldsUpNoProtection(t *testing.T) {
	for _, protects := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, known, budget := protected(t)
			n.writer(never).Limit(t.Context(), all)
			limited := n.differs()
			if protects {
				n.writer(never).Protect(t.Context(), known, budget)
			}
			r := Mend(t.Context(), n.fs, "", false, func() bool { time.Sleep(2 * endLimit); return false }, nil)
			if r.Left != (Left{Limits: true}) {
				t.Errorf("protects %v: left %+v, %v", protects, r.Left, r.Err)
			}
			n.expect("limits are left", limited)
		})
	}
}

// What no time was left for is said to be left where something is noted of it, and only there.
func TestWhatIsLeftIsWhatIsNoted(t *testing.T) {
	for _, last := range []string{"", "kubepods/burstable/podb/b-c", "kubepods"} {
		n, known, budget := protected(t)
		if last != "" {
			n.writer(never).Protect(t.Context(), known, budget)
			for _, note := range n.notes() {
				if group, file, _ := strings.Cut(note, " "); group != last {
					n.forget(group, cgroup.LimitFile(file))
				}
			}
		}
		r := n.writer(never).Undo(&cut{t.Context(), 0}, false, true)
		if r.Left != (Left{Protection: last != ""}) || (r.Err == nil) != (last == "") {
			t.Errorf("noted of %q: %+v", last, r)
		}
	}
}

// forget removes a note.
func (n *node) forget(group string, file cgroup.LimitFile) {
	n.Helper()
	g, err := n.fs.Group(group)
	if err != nil {
		n.Fatal(err)
	}
	defer g.Close()
	if err := cgroupundo.Forget(g, file); err != nil {
		n.Fatal(err)
	}
}

// Protection that an agent before this one has left goes before the first pass that protects anew, so that others may add to what is there
// between the two. What cannot be put back then is built upon, as what this agent has written.
func TestProtectionBeginsAnew(t *testing.T) {
	for _, broken := range []bool{false, true} {
		n, known, budget := protected(t)
		n.writer(never).Protect(t.Context(), known, budget)
		whole := n.differs()
		p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.Left = false, Left{Protection: true} })
		now := time.Now()
		pass := func() {
			t.Helper()
			if p.Tick(t.Context(), now, false, known.Runtime); !p.running {
				t.Fatal("no pass")
			}
			p.OnResult(<-p.Results())
			now = now.Add(time.Second)
		}
		if broken {
			n.write("kubepods/poda/memory.min", "none\n")
		}
		if pass(); p.Protects() != broken || !broken && len(n.differs()) > 0 {
			t.Errorf("broken %v: protects %v, %v", broken, p.Protects(), n.differs())
		}
		n.write("kubepods/poda/memory.min", map[bool]string{true: "104857600\n", false: "0\n"}[broken])
		if pass(); !p.Protects() {
			t.Error("it does not protect")
		}
		n.expect("anew", whole)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A pass that puts nothing back knows nothing of what is left: systemd is told of all of it by the next one that does.
func TestAPassThatOnlyWritesForgetsNothing(t *testing.T) {
	const burstable = "kubepods.slice/kubepods-burstable.slice"
	n := newNode(t, burstable+"/kubepods-burstable-podb.slice")
	s := &systemd{down: errors.New("no bus")}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	w.Protect(t.Context(), Known{Objects: []*v1.Pod{object("b", "c 10Mi 20Mi")}}, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096})
	mended := Mend(t.Context(), n.fs, "", true, never, s.tell)
	if mended.Left != (Left{Word: true}) {
		t.Fatalf("%+v", mended)
	}
	p, _ := partOf(n, Known{}, func(o *Options) { o.MemoryQoS, o.Left, o.Tell = false, mended.Left, s.tell })
	now, undid := time.Now(), 0
	for range 4 { // put back is at once, and after 10 s and 20 s; written every 10 s
		if p.Tick(t.Context(), now, false, nil); !p.running || !p.pass.limit {
			t.Fatalf("%+v", p.pass)
		}
		if p.pass.undoes() {
			undid++
		}
		p.OnResult(<-p.Results())
		if now = now.Add(Every); undid == 2 {
			s.down, p.writer.refused = nil, time.Time{}
		}
	}
	if left := n.owed("kubepods.slice", burstable, burstable+"/kubepods-burstable-podb.slice"); len(left) > 0 || undid != 3 {
		t.Errorf("put back %d times, owed %v", undid, left)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// What of it is protected is what the pass says that was to put that back: of one that only lifts limits it stays as it was, and where not
// all was put back it is tried again.
func TestWhoseWordOfProtectionCounts(t *testing.T) {
	n, known, _ := protected(t)
	n.writer(never).Limit(t.Context(), all)
	p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.Left = false, Left{Limits: true} })
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	if p.pass != (duty{protect: true, unlimit: true}) {
		t.Errorf("%+v", p.pass)
	}
	if p.OnResult(<-p.Results()); p.left != (Left{Protection: true}) {
		t.Errorf("limits are lifted, and memory is protected: left %+v", p.left)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	n.expect("closed", map[string]string{})

	n, known, budget := protected(t)
	n.writer(never).Protect(t.Context(), known, budget)
	p, _ = partOf(n, known, func(o *Options) { o.MemoryQoS, o.Left = false, Left{Protection: true} })
	n.write("kubepods/poda/memory.min", "none\n")
	now := time.Now()
	for i, after := range []time.Duration{0, Every} {
		if p.Tick(t.Context(), now.Add(after), false, known.Runtime); p.pass != (duty{limit: true, unprotect: true}) {
			t.Errorf("%+v", p.pass)
		}
		if p.OnResult(<-p.Results()); p.left.Protection != (i == 0) {
			t.Errorf("after %v: left %+v", after, p.left)
		}
		n.write("kubepods/poda/memory.min", "104857600\n")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
