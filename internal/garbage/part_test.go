package garbage

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/eviction"
	"jettison/internal/repeat"
	"jettison/reclaim"
	"jettison/stats"
)

// newTestPart makes a Part without a Collector, and what it logs.
func newTestPart(change func(*PartOptions)) (*Part, *bytes.Buffer) {
	log := new(bytes.Buffer)
	o := PartOptions{
		Log: repeat.New(slog.New(slog.NewTextHandler(log, nil))), Named: NewNamed(func() []*v1.Pod { return nil }, false), Kubelet: func() bool { return false },
	}
	if change != nil {
		change(&o)
	}
	return NewPart(o), log
}

// What a pass says beside its steps is logged when it changes: a state file that was none, a disk that images cannot make room on, what
// is no known pod's, and what a kubelet has to collect.
func TestWhatAPassSaysIsLogged(t *testing.T) {
	p, log := newTestPart(nil)
	now := time.Now()
	step := reclaim.Step{Action: reclaim.RemoveContainer, ID: "c"}
	say := func(r Result, want ...string) {
		t.Helper()
		log.Reset()
		r.What = Everything
		p.OnResult(now, &r)
		got := strings.Count(log.String(), "\n")
		if got != len(want) {
			t.Errorf("%d lines, want %d:\n%s", got, len(want), log)
		}
		for _, w := range want {
			if !strings.Contains(log.String(), w) {
				t.Errorf("no %q in\n%s", w, log)
			}
		}
	}
	say(Result{})
	odd := Result{Observed: DryRun, Odd: []string{"images.json: starting anew"}}
	say(odd, "starting anew")
	say(odd)
	say(Result{Plan: reclaim.Plan{Short: "Insufficient free disk space"}}, "Insufficient free disk space")
	say(Result{})
	say(Result{Plan: reclaim.Plan{Short: "Insufficient free disk space"}}, "Insufficient free disk space")
	left := Result{Plan: reclaim.Plan{Left: make([]reclaim.Left, 20)}}
	say(left, "and 4 more")
	say(left)
	observed := Result{Observed: "a kubelet does", Plan: reclaim.Plan{Steps: []reclaim.Step{step}}}
	say(observed, "planned=1")
	say(observed)
	say(Result{Observed: DryRun, Plan: observed.Plan})
	unseen := errors.New("no image goes")
	say(Result{Unseen: unseen, Odd: []string{unseen.Error()}}, "no image goes")
	putOff := Result{PutOff: "the runtime took 3s for its list of images"}
	say(putOff, "is put off")
	say(putOff)
	say(Result{Done: []Done{{Step: step}}}, "garbage collected")
	say(Result{Trigger: reclaim.DiskPressure}, "garbage collected")
}

// A disk that is short has garbage collected once a minute, unless something else is wished for. The pass is waited for, and then a look
// that has seen what it gave back.
func TestRelieve(t *testing.T) {
	remeasured := 0
	p, log := newTestPart(func(o *PartOptions) { o.Remeasure = func() { remeasured++ } })
	var asked []Relief
	looked, start := false, time.Now()
	images := []eviction.Wish{{What: eviction.ReclaimImages, Signals: []stats.Signal{stats.SignalNodeFsAvailable}}}
	both := append(slices.Clone(images), eviction.Wish{What: eviction.ReclaimContainers})
	relieve := func(what string, after time.Duration, wishes []eviction.Wish, waits bool, begun int) {
		t.Helper()
		got := p.Relieve(start.Add(after), Shortage{
			Wishes: wishes, Fields: func() []any { return []any{"signal", "nodefs.available"} },
			LookedSince: func(since time.Time) bool {
				if !since.Equal(p.last.done) {
					t.Errorf("%s: it asks for looks since %v, not since the end of the pass", what, since.Sub(start))
				}
				return looked
			},
		})
		if got != waits || len(asked) != begun {
			t.Errorf("%s: waits %v, want %v; %d asked for, want %d", what, got, waits, len(asked), begun)
		}
	}
	relieve("nothing collects", 0, images, false, 0)
	p.ask = func(r Relief) { asked = append(asked, r) }
	relieve("at first", 0, images, true, 1)
	relieve("under way", relieveLimit-1, images, true, 1)
	relieve("under way, something else", relieveLimit-1, both, true, 1)
	relieve("for too long", relieveLimit, images, false, 1)
	done := time.Minute
	if p.OnResult(start.Add(done), &Result{}); remeasured != 0 || !p.last.done.IsZero() {
		t.Error("a periodic pass is taken for the one that was asked for")
	}
	if p.OnResult(start.Add(done), &Result{Trigger: reclaim.DiskPressure}); remeasured != 1 {
		t.Error("what pods take is not measured anew")
	}
	relieve("no look since", done+1, images, true, 1)
	looked = true
	relieve("looked since", done+1, images, false, 1)
	relieve("something else", done+1, both, true, 2)
	p.OnResult(start.Add(2*done), &Result{Trigger: reclaim.DiskPressure})
	relieve("less than before", 2*done+1, images, false, 2)
	relieve("a minute later", 2*done+relieveAgain, images, true, 3)
	if !slices.EqualFunc(asked[1].Wishes, both, func(a, b eviction.Wish) bool { return a.What == b.What }) {
		t.Errorf("asked for %v", asked[1].Wishes)
	}
	if n := strings.Count(log.String(), "collecting garbage before a pod is evicted\" signal=nodefs.available"); n != 3 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

// The config says whether passes remove something; where it does not, a kubelet does.
func TestWhereNothingIsCollected(t *testing.T) {
	for _, c := range []struct {
		mode    string
		kubelet bool
		want    bool
	}{{"", false, false}, {"", true, true}, {"act", true, false}, {"observe", false, true}} {
		p, _ := newTestPart(func(o *PartOptions) { o.Mode, o.Kubelet = c.mode, func() bool { return c.kubelet } })
		p.ask = func(Relief) {}
		waits := p.Relieve(time.Now(), Shortage{Fields: func() []any { return nil }})
		if p.Observes() != c.want || waits == c.want {
			t.Errorf("%+v: observes %v, waits for a relief: %v", c, p.Observes(), waits)
		}
	}
}

// Evictions hold the collector, once, and let it go on.
func TestAPartLetsEvictionsGoFirst(t *testing.T) {
	p, _ := newTestPart(nil)
	p.EvictionsFirst(true) // without a collector there is nothing to hold
	p.collector = &Collector{}
	for _, busy := range []bool{true, true, false, true, false, false} {
		p.EvictionsFirst(busy)
		if held := p.collector.holds == 1; held != busy || p.collector.holds > 1 {
			t.Errorf("busy %v: held %d times", busy, p.collector.holds)
		}
	}
}

// Once it is started passes come by themselves, with what is known of pods; stopping it does not wait for a loop that has ended.
func TestAPartCollects(t *testing.T) {
	n := newNode(t)
	n.container("c", "s", uidA, exited, time.Hour, "")
	p, log := newTestPart(func(o *PartOptions) { o.Mode = "act" })
	p.o.Named.onEvicted(time.Now(), uidA)
	p.o.Named.objects = func() []*v1.Pod { return []*v1.Pod{object(uidA, v1.PodRunning, "")} }
	o := n.o
	o.Known, o.Mode = func() Known { t.Error("not the Part's"); return Known{} }, "observe"
	n.Close() // another process's lock would keep it from writing
	stop := p.Start(o, Schedule{})
	if !strings.Contains(log.String(), "starts anew") {
		t.Errorf("what is missing is not said: %q", log)
	}
	if !p.Relieve(time.Now(), Shortage{Wishes: []eviction.Wish{{What: eviction.ReclaimContainers}}, Fields: func() []any { return nil }}) {
		t.Error("it does not wait for what it asks for")
	}
	r := <-p.Results()
	p.OnResult(time.Now(), &r)
	n.want(r, "container c")
	p.ask(Relief{Wishes: []eviction.Wish{{What: eviction.ReclaimContainers}}}) // its result is taken by nothing
	stop()
	if strings.Contains(log.String(), "stopping") {
		t.Errorf("it does not end: %s", log)
	}
	o.Runtime = nil
	log.Reset()
	p, log = newTestPart(nil)
	p.Start(o, Schedule{})()
	if !strings.Contains(log.String(), "no garbage is collected") || p.ask != nil {
		t.Errorf("without a runtime: %q", log)
	}
}
