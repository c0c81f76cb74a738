package garbage

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
	"jettison/reclaim"
)

// newTestPart returns a Part without a Collector, and its log.
func newTestPart(change func(*PartOptions)) (*Part, *bytes.Buffer) {
	log := new(bytes.Buffer)
	o := PartOptions{
		Log: logthrottle.New(slog.New(slog.NewTextHandler(log, nil))), Named: NewNamed(func() ([]*v1.Pod, map[string]bool) { return nil, nil }, false), Kubelet: func() bool { return false },
	}
	if change != nil {
		change(&o)
	}
	return NewPart(o), log
}

// Findings of a pass are logged when they change: an unreadable state file, a disk that image removals cannot relieve, leftovers of unknown
// pods, and garbage that a kubelet collects.
func TestWhatAPassSaysIsLogged(t *testing.T) {
	p, log := newTestPart(nil)
	step := reclaim.Step{Action: reclaim.RemoveContainer, ID: "c"}
	say := func(r Result, want ...string) {
		t.Helper()
		log.Reset()
		r.What = Everything
		p.OnResult(&r)
		got := strings.Count(log.String(), "\n")
		if got != len(want) {
			t.Errorf("%d lines, want %d:\n%s", got, len(want), log)
		}
		for _, w := range want {
			if !strings.Contains(log.String(), w) {
				t.Errorf("%q missing in the log:\n%s", w, log)
			}
		}
	}
	say(Result{})
	odd := Result{PlanOnly: DryRun, Warnings: []string{"images.json: empty"}}
	say(odd, "images.json: empty")
	say(odd)
	say(Result{Plan: reclaim.Plan{Short: "Insufficient free disk space"}}, "Insufficient free disk space")
	say(Result{})
	say(Result{Plan: reclaim.Plan{Short: "Insufficient free disk space"}}, "Insufficient free disk space")
	left := Result{Plan: reclaim.Plan{Left: make([]reclaim.Left, 20)}}
	say(left, "and 4 more")
	say(left)
	observed := Result{PlanOnly: "a kubelet does", Plan: reclaim.Plan{Steps: []reclaim.Step{step}}}
	say(observed, "planned=1")
	say(observed)
	say(Result{PlanOnly: DryRun, Plan: observed.Plan})
	unseen := errors.New("no image goes")
	say(Result{ImagesErr: unseen, Warnings: []string{unseen.Error()}}, "no image goes")
	putOff := Result{Postponed: "the runtime took 3s for its list of images"}
	say(putOff, "garbage collection postponed")
	say(putOff)
	say(Result{Done: []Done{{Step: &step}}}, "garbage collected")
	say(Result{Trigger: reclaim.DiskPressure}, "garbage collected")
}

// The pods' disk usage is measured again after each pass for a disk that is short, and only then.
func TestAReliefIsMeasured(t *testing.T) {
	remeasured := 0
	p, _ := newTestPart(func(o *PartOptions) { o.Remeasure = func() { remeasured++ } })
	if p.OnResult(&Result{}); remeasured != 0 {
		t.Error("a periodic pass is taken for one that was asked for")
	}
	if p.OnResult(&Result{Trigger: reclaim.DiskPressure}); remeasured != 1 {
		t.Error("what pods take is not measured anew")
	}
}

// The configuration decides whether passes remove garbage; if it sets no mode, the presence of a
// kubelet decides. A Part that was not started removes nothing.
func TestWhereGarbageIsCollected(t *testing.T) {
	for _, c := range []struct {
		mode    config.Mode
		kubelet bool
		want    bool
	}{{config.ModeUnset, false, true}, {config.ModeUnset, true, false}, {config.ModeAct, true, true}, {config.ModeObserve, false, false}} {
		p, _ := newTestPart(func(o *PartOptions) { o.Mode, o.Kubelet = c.mode, func() bool { return c.kubelet } })
		if p.Acts() {
			t.Errorf("%+v: it acts before it was started", c)
		}
		p.relieve = func([]eviction.ReclaimRequest) {}
		if p.Acts() != c.want {
			t.Errorf("mode %+v: Acts = %v, want %v", c, p.Acts(), c.want)
		}
	}
}

// Evictions hold the collector once, and release it afterwards.
func TestAPartLetsEvictionsGoFirst(t *testing.T) {
	p, _ := newTestPart(nil)
	p.EvictionsFirst(true) // has no effect without a collector
	p.collector = &Collector{}
	for _, busy := range []bool{true, true, false, true, false, false} {
		p.EvictionsFirst(busy)
		if held := p.collector.holds == 1; held != busy || p.collector.holds > 1 {
			t.Errorf("busy %v: number of holds = %d, want one while busy", busy, p.collector.holds)
		}
	}
}

// After Start, passes run with the known pods of the Part. Stopping does not wait for a loop that
// has ended.
func TestAPartCollects(t *testing.T) {
	n := newNode(t)
	n.container("c", "s", uidA, exited, time.Hour, "")
	p, log := newTestPart(func(o *PartOptions) { o.Mode = config.ModeAct })
	p.o.Named.onEvicted(time.Now(), uidA, nil)
	p.o.Named.objects = func() ([]*v1.Pod, map[string]bool) { return []*v1.Pod{object(uidA, v1.PodRunning, "")}, nil }
	o := n.o
	o.Known, o.Mode = func() Known { t.Error("Known of the options called, want the Part's"); return Known{} }, config.ModeObserve
	n.Close() // releases the lock, so that the Part can write its state
	stop := p.Start(o, Schedule{})
	if !strings.Contains(log.String(), "garbage collection state missing") {
		t.Errorf("log of Start with missing state files = %q, want a line about them", log)
	}
	wishes := []eviction.ReclaimRequest{{What: eviction.ReclaimContainers}}
	p.Relieve(wishes)
	r := <-p.Results()
	p.OnResult(&r)
	n.want(r, "container c")
	p.Relieve(wishes) // its result is not received
	stop()
	if strings.Contains(log.String(), "did not stop in time") {
		t.Errorf("log after stop = %s, want no line about a pass that did not end", log)
	}
	o.Runtime = nil
	log.Reset()
	p, log = newTestPart(nil)
	p.Start(o, Schedule{})()
	if !strings.Contains(log.String(), "garbage collection disabled") || p.relieve != nil {
		t.Errorf("log without a runtime = %q, want a line that collection is disabled", log)
	}
}
