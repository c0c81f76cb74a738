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

// partOf returns a Part on a node, and its log.
func partOf(n *node, known Known, change func(*Options)) (*Part, *bytes.Buffer) {
	var text bytes.Buffer
	o := Options{
		FS: n.fs, Allocatable: true, MemoryQoS: true, Factor: 0.9, Kubelet: never, Objects: func() ([]*v1.Pod, map[string]bool) { return known.Objects, known.Members },
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

// Memory in preallocated huge pages protects no pod: with more protected than the rest, the kernel can only kill.
func TestHugePagesAreNotProtected(t *testing.T) {
	n, known, _ := protected(t)
	p, _ := partOf(n, known, func(o *Options) {
		o.Node = func() Node {
			left := list("memory", "7218Mi", "cpu", "4") // 50Mi more than the huge pages
			return Node{Capacity: list("memory", "8Gi", "hugepages-2Mi", "6Gi", "hugepages-1Gi", "1Gi"), Enforced: left, Left: left}
		}
	})
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	r := <-p.Results()
	p.OnResult(r)
	if got := n.differs()["kubepods memory.min"]; got != "52428800" || r.Skipped.OverAllocatable == 0 {
		t.Errorf("memory.min of kubepods = %s, %+v, want 50Mi, and a pod over allocatable", got, r.Skipped)
	}
}

// Passes run one at a time, at the period. Their changes are logged. Close restores protection, and
// limits stay.
func TestPart(t *testing.T) {
	n, known, _ := protected(t)
	p, text := partOf(n, known, nil)
	now := time.Now()
	p.Tick(t.Context(), now, false, known.Runtime)
	p.Tick(t.Context(), now.Add(Every), false, known.Runtime) // the first result was not received yet
	p.OnResult(<-p.Results())
	got := n.differs()
	if got["kubepods memory.max"] != "7516192768" || got["kubepods cpu.weight"] != "149" || got["kubepods memory.min"] != "104857600" {
		t.Errorf("files that differ after a pass = %v", got)
	}
	for _, want := range []string{
		`msg="node allocatable written" cgroup=kubepods file=memory.max from=max to=7516192768`, `msg="memory protection updated" eventKind=memory pods=4 unknown=1 unconfirmed=0 overAllocatable=0 inUse=0 written=9 restored=0`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("log of a pass lacks %s:\n%s", want, text)
		}
	}
	text.Reset()
	if p.Tick(t.Context(), now.Add(Every-1), false, known.Runtime); p.running {
		t.Error("a second pass started before its time")
	}
	p.Tick(t.Context(), now.Add(Every), false, known.Runtime)
	if p.OnResult(<-p.Results()); text.Len() > 0 {
		t.Errorf("log of a pass without changes = %s", text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	n.expect("closed", map[string]string{"kubepods memory.max": "7516192768", "kubepods cpu.weight": "149"})
}

// With a kubelet, protection is restored once, limits are left to it, and nothing is written.
// Without it, writing resumes.
func TestPartWithKubelet(t *testing.T) {
	n, known, _ := protected(t)
	var kubelet atomic.Bool
	p, text := partOf(n, known, func(o *Options) { o.Kubelet = kubelet.Load })
	now := time.Now()
	pass := func(beside, want bool) {
		t.Helper()
		now = now.Add(Every)
		p.Tick(t.Context(), now, beside, known.Runtime)
		if p.running != want {
			t.Errorf("pass started = %v, want %v", p.running, want)
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
	kubelet.Store(true) // the loop does not know that yet
	pass(false, true)
	n.expect("nothing has to be written, and nobody looks", whole)
	p.o.Objects = func() ([]*v1.Pod, map[string]bool) { return []*v1.Pod{object("a", "c 10Mi 10Mi")}, nil }
	pass(false, true)
	n.expect("it is seen right before something is written", limits)
	if !strings.Contains(text.String(), "kubelet detected, restoring") {
		t.Error(text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A Part without features writes nothing, nor does a nil Part.
func TestPartWithoutFeatures(t *testing.T) {
	n, known, _ := protected(t)
	p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.MemoryQoS = false, false })
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	if p.running {
		t.Error("a pass started without a feature")
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

// Settings of an earlier agent are restored as soon as no kubelet runs, with a backoff after
// failures, and only once.
func TestSettingsOfEarlierAgent(t *testing.T) {
	n, known, budget := protected(t)
	n.writer(never).Limit(t.Context(), all)
	n.writer(never).Protect(t.Context(), known, budget)
	mended := n.writer(always).Undo(&cut{t.Context(), 0}, true, true)
	if mended.Left != (Remaining{Limits: true, Protection: true}) || mended.Restored > 0 {
		t.Fatalf("Mend = %+v, want settings left", mended)
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
			t.Errorf("pass started = %v, want %v", p.running, want)
		}
		if p.running {
			p.OnResult(<-p.Results())
		}
	}
	limits := map[string]string{"kubepods memory.max": "7516192768", "kubepods pids.max": "30000", "kubepods cpu.weight": "149"}
	pass(0, true, true)
	n.expect("beside a kubelet", limits)
	pass(Every, true, false)
	for wait := time.Duration(0); wait < maxRestorePause; wait = min(max(2*wait, Every), maxRestorePause) {
		pass(wait, false, true) // the loop does not know that yet
		pass(max(wait, Every/2)-1, false, false)
		now = now.Add(1 - max(wait, Every/2))
	}
	n.expect("one is seen right before", limits)
	kubelet = false
	pass(maxRestorePause, false, true)
	n.expect("it has gone", map[string]string{})
	pass(maxRestorePause, false, false)
	if left := n.notes(); len(left) > 0 || strings.Count(text.String(), `msg="restored pod cgroup settings" eventKind=memory restored=3`) != 1 {
		t.Errorf("notes after the restore = %v; log:\n%s", left, text)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// If systemd did not answer during the restore, a later pass updates it, and restores values that
// systemd reset meanwhile.
func TestLaterPassUpdatesSystemd(t *testing.T) {
	n := newNode(t, "kubepods.slice")
	s := &systemd{}
	(&Writer{FS: n.fs, Kubelet: never, Tell: s.tell}).Limit(t.Context(), all)
	s.down = errors.New("no bus")
	mended := Restore(t.Context(), n.fs, "", false, never, s.tell)
	p, _ := partOf(n, Known{}, func(o *Options) {
		o.Allocatable, o.MemoryQoS, o.Left, o.Tell = false, false, mended.Left, s.tell
	})
	now := time.Now()
	pass := func() {
		t.Helper()
		if p.Tick(t.Context(), now, false, nil); !p.running {
			t.Fatal("no pass started although one is due")
		}
		p.OnResult(<-p.Results())
		now = now.Add(maxRestorePause)
	}
	for range 3 {
		pass()
	}
	s.reload(n, "kubepods.slice")
	s.down, p.writer.systemdFailed = nil, time.Time{}
	pass()
	n.expect("told", map[string]string{})
	if left := n.notes(); len(left)+len(n.owed("kubepods.slice")) > 0 || !s.has["kubepods.slice"][cgroup.FileMemoryMax].Unlimited {
		t.Errorf("notes = %v, values of systemd = %v", left, s.has)
	}
	if p.Tick(t.Context(), now.Add(maxRestorePause), false, nil); p.running {
		t.Error("another pass started after the restore")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Each of the two features is written without the other.
func TestPartOfOneKind(t *testing.T) {
	for _, limits := range []bool{true, false} {
		n, known, _ := protected(t)
		p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.MemoryQoS = limits, !limits })
		p.Tick(t.Context(), time.Now(), false, known.Runtime)
		p.OnResult(<-p.Results())
		got := n.differs()
		if _, limited := got["kubepods memory.max"]; limited != limits {
			t.Errorf("with limits %v, files that differ = %v", limits, got)
		}
		if _, protected := got["kubepods memory.min"]; protected == limits {
			t.Errorf("with limits %v, files that differ = %v", limits, got)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If the limit is not enforced, node allocatable still determines the throttling of a container
// without a limit.
func TestThrottlingWithoutEnforcedLimit(t *testing.T) {
	n, known, _ := protected(t)
	n.start("kubepods/burstable/podb/b-c/memory.max", "max")
	known.Objects = []*v1.Pod{object("b", "c 1Gi ")}
	p, _ := partOf(n, known, func(o *Options) {
		o.Node = func() Node { return Node{list("memory", "16Gi"), list("memory", "16Gi"), list("memory", "12Gi")} }
	})
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	p.OnResult(<-p.Results())
	got := n.differs()
	if got["kubepods/burstable/podb/b-c memory.high"] != "11703783424" || got["kubepods memory.max"] != "17179869184" {
		t.Errorf("memory.high = %v, want it computed from node allocatable", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A pass that blocks in the kernel delays Close only until its timeout.
func TestCloseWithBlockedPass(t *testing.T) {
	n, known, _ := protected(t)
	hang := make(chan struct{})
	p, _ := partOf(n, known, func(o *Options) { o.Kubelet = func() bool { <-hang; return true } })
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	began := time.Now()
	err := p.Close()
	if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > time.Minute {
		t.Errorf("Close = %v after %v, want a timeout", err, time.Since(began))
	}
	close(hang)
	p.passing.Wait()
	n.expect("nothing was written", map[string]string{})
}

// A repeated error is logged once.
func TestErrorIsLoggedOnce(t *testing.T) {
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

// A slow search for a kubelet at the start delays only limits: protection is restored completely.
func TestMendWithSlowSearch(t *testing.T) {
	for _, protects := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, known, budget := protected(t)
			n.writer(never).Limit(t.Context(), all)
			limited := n.differs()
			if protects {
				n.writer(never).Protect(t.Context(), known, budget)
			}
			r := Restore(t.Context(), n.fs, "", false, func() bool { time.Sleep(2 * endLimit); return false }, nil)
			if r.Left != (Remaining{Limits: true}) {
				t.Errorf("with protection %v: left %+v, error %v", protects, r.Left, r.Err)
			}
			n.expect("limits are left", limited)
		})
	}
}

// Cgroups that a pass has no time for count as left only if they have a note.
func TestLeftNeedsNote(t *testing.T) {
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
		if r.Left != (Remaining{Protection: last != ""}) || (r.Err == nil) != (last == "") {
			t.Errorf("with a note on %q, result = %+v", last, r)
		}
	}
}

// forget removes a note from a cgroup.
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

// Protection of an earlier agent is restored before the first pass that protects, so that others
// may add to the values in between. Values that cannot be restored then are treated as this
// agent's.
func TestRestoreBeforeProtection(t *testing.T) {
	for _, broken := range []bool{false, true} {
		n, known, budget := protected(t)
		budget.Allocatable = 7 << 30 // as partOf's node
		n.writer(never).Protect(t.Context(), known, budget)
		whole := n.differs()
		p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.Left = false, Remaining{Protection: true} })
		now := time.Now()
		pass := func() {
			t.Helper()
			if p.Tick(t.Context(), now, false, known.Runtime); !p.running {
				t.Fatal("no pass started although one is due")
			}
			p.OnResult(<-p.Results())
			now = now.Add(time.Second)
		}
		if broken {
			n.write("kubepods/poda/memory.min", "none\n")
		}
		if pass(); p.Protects() != broken || !broken && len(n.differs()) > 0 {
			t.Errorf("broken %v: protects %v, files that differ %v", broken, p.Protects(), n.differs())
		}
		n.write("kubepods/poda/memory.min", map[bool]string{true: "104857600\n", false: "0\n"}[broken])
		if pass(); !p.Protects() {
			t.Error("the second pass does not protect")
		}
		n.expect("anew", whole)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A pass that only writes keeps the list of slices for systemd: the next pass that restores updates
// it about all.
func TestWritingPassKeepsSlices(t *testing.T) {
	const burstable = "kubepods.slice/kubepods-burstable.slice"
	n := newNode(t, burstable+"/kubepods-burstable-podb.slice")
	s := &systemd{down: errors.New("no bus")}
	w := &Writer{FS: n.fs, Kubelet: never, Tell: s.tell}
	w.Protect(t.Context(), Known{Objects: []*v1.Pod{object("b", "c 10Mi 20Mi")}}, Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096})
	mended := Restore(t.Context(), n.fs, "", true, never, s.tell)
	if mended.Left != (Remaining{Systemd: true}) {
		t.Fatalf("unexpected result of Mend: %+v", mended)
	}
	p, _ := partOf(n, Known{}, func(o *Options) { o.MemoryQoS, o.Left, o.Tell = false, mended.Left, s.tell })
	now, undid := time.Now(), 0
	for range 4 { // restores run immediately and after 10 s and 20 s, writes every 10 s
		if p.Tick(t.Context(), now, false, nil); !p.running || !p.pass.limit {
			t.Fatalf("duty of the pass = %+v", p.pass)
		}
		if p.pass.restores() {
			undid++
		}
		p.OnResult(<-p.Results())
		if now = now.Add(Every); undid == 2 {
			s.down, p.writer.systemdFailed = nil, time.Time{}
		}
	}
	if left := n.owed("kubepods.slice", burstable, burstable+"/kubepods-burstable-podb.slice"); len(left) > 0 || undid != 3 {
		t.Errorf("passes that restored = %d, slices for systemd %v", undid, left)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Remaining.Protection is set by passes that restore protection only. A pass that lifts limits keeps it,
// and an incomplete restore is retried.
func TestLeftProtection(t *testing.T) {
	n, known, _ := protected(t)
	n.writer(never).Limit(t.Context(), all)
	p, _ := partOf(n, known, func(o *Options) { o.Allocatable, o.Left = false, Remaining{Limits: true} })
	p.Tick(t.Context(), time.Now(), false, known.Runtime)
	if p.pass != (duty{protect: true, unlimit: true}) {
		t.Errorf("unexpected duty of the pass: %+v", p.pass)
	}
	if p.OnResult(<-p.Results()); p.left != (Remaining{Protection: true}) {
		t.Errorf("limits are lifted, and memory is protected: left %+v", p.left)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	n.expect("closed", map[string]string{})

	n, known, budget := protected(t)
	n.writer(never).Protect(t.Context(), known, budget)
	p, _ = partOf(n, known, func(o *Options) { o.MemoryQoS, o.Left = false, Remaining{Protection: true} })
	n.write("kubepods/poda/memory.min", "none\n")
	now := time.Now()
	for i, after := range []time.Duration{0, Every} {
		if p.Tick(t.Context(), now.Add(after), false, known.Runtime); p.pass != (duty{limit: true, unprotect: true}) {
			t.Errorf("unexpected duty of the pass: %+v", p.pass)
		}
		if p.OnResult(<-p.Results()); p.left.Protection != (i == 0) {
			t.Errorf("after another %v, settings left = %+v", after, p.left)
		}
		n.write("kubepods/poda/memory.min", "104857600\n")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
