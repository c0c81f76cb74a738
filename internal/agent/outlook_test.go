package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/nodestats"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
	"jettison/stats"
	"jettison/stats/read"
)

const (
	firstPod  = "11111111-1111-1111-1111-111111111111"
	secondPod = "22222222-2222-2222-2222-222222222222"
)

// askOutlook requests an Outlook, and takes the request as the loop does.
func (l *testLoop) askOutlook(t *testing.T) *api.Outlook {
	t.Helper()
	type answer struct {
		outlook *api.Outlook
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		o, err := l.publisher.outlook.ask(context.Background())
		done <- answer{o, err}
	}()
	for {
		select {
		case r := <-l.publisher.outlook.requests:
			l.onOutlook(time.Now(), r)
		case a := <-done:
			if a.err != nil {
				t.Fatalf("request for an outlook: %v", a.err)
			}
			return a.outlook
		}
	}
}

// ofMemory returns the entry for memory.available.
func ofMemory(t testing.TB, o *api.Outlook) *api.ThresholdOutlook {
	t.Helper()
	for i := range o.Thresholds {
		if o.Thresholds[i].Signal == stats.SignalMemoryAvailable {
			return &o.Thresholds[i]
		}
	}
	t.Fatalf("the outlook has no threshold of memory: %+v", o)
	return nil
}

func ranks(x *api.ThresholdOutlook, uid string) bool {
	return slices.ContainsFunc(x.Ranking, func(p api.RankedPod) bool { return p.UID == uid })
}

// The outlook names the pod that is evicted when the threshold is met, and the protections of
// others. A second request within a second gets the same answer: pods are not read for each
// request.
func TestTheOutlookNamesTheVictim(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	for i, uid := range []string{firstPod, secondPod} {
		l.AddPod("kubepods/besteffort/pod"+uid, 100*(1+5*i))
	}
	now := time.Now()
	l.measure(now)
	calm := l.askOutlook(t)
	m := ofMemory(t, calm)
	if m.Met || m.NoEvictionReason != "" || len(m.Ranking) != 3 || m.Limit == 0 || m.Observed == nil {
		t.Fatalf("outlook of memory at rest = %+v, want three ranked pods", m)
	}
	if again := l.askOutlook(t); again != calm && again.Time.Sub(calm.Time) < time.Second {
		t.Errorf("pods were read again %v after the first request, want one reading a second", again.Time.Sub(calm.Time))
	}
	l.Available(50)
	now = now.Add(2 * time.Second)
	ready := l.measure(now)
	d, _, err := l.choose(t.Context(), now, eviction.LookMemory, &ready)
	if err != nil || len(d.Evictions) != 1 {
		t.Fatalf("choose: error %v, %d evictions, want one: %s", err, len(d.Evictions), d.Reason)
	}
	if uid := d.Evictions[0].Pod.PodRef.UID; uid != m.Ranking[0].UID || uid == nodetest.UID {
		t.Errorf("victim = %s, but the outlook named %s", uid, m.Ranking[0].UID)
	}
}

// An outlook is made for the request, also while tasks stall, a threshold is met, or an eviction is in
// progress: a dead pod is not ranked, a new one is. The loop makes no look at all pods for it.
func TestTheOutlookIsCurrent(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.AddPod("kubepods/besteffort/pod"+firstPod, 600)
	l.measure(time.Now())
	before := l.askOutlook(t)
	if m := ofMemory(t, before); !ranks(m, firstPod) {
		t.Fatalf("the outlook lacks the pod %s: %+v", firstPod, m.Ranking)
	}
	if err := os.RemoveAll(filepath.Join(l.Dir, "cgroup/kubepods/besteffort/pod"+firstPod)); err != nil {
		t.Fatal(err)
	}
	l.AddPod("kubepods/besteffort/pod"+secondPod, 500)
	l.Available(50)
	l.pace.OnPressure(time.Now())
	looks := l.looks.Counts().Full.Value()
	time.Sleep(time.Until(before.Time.Add(time.Second + time.Millisecond))) // until the reading is not reused
	began := time.Now()
	l.measure(began)
	o := l.askOutlook(t)
	if m := ofMemory(t, o); !m.Met || ranks(m, firstPod) || !ranks(m, secondPod) {
		t.Errorf("outlook after %s died and %s started: met %v, ranking %+v", firstPod, secondPod, m.Met, m.Ranking)
	}
	if o.Time.Before(began) {
		t.Errorf("the pods were read %v before the request", began.Sub(o.Time))
	}
	if n := l.looks.Counts().Full.Value() - looks; n != 0 {
		t.Errorf("the loop looked at all pods %d times for outlooks, want 0", n)
	}
}

// newTaker returns a Taker that reads n until the end of the test.
func newTaker(t *testing.T, n *nodetest.Node) *nodestats.Taker {
	t.Helper()
	taker := nodestats.New(nodestats.Options{Open: func() (*read.Reader, func(), error) {
		r, err := read.NewReader(n.Sources.FS, n.Sources.Proc, "")
		return r, func() {}, err
	}})
	t.Cleanup(func() {
		if err := taker.Close(); err != nil {
			t.Error(err)
		}
	})
	return taker
}

// Without the runtime's list, or while the loop hangs, a request ends with the reason.
func TestOutlookRequestsFail(t *testing.T) {
	n := nodetest.New(t)
	taker := newTaker(t, n)
	o := newOutlook(taker)
	if _, err := o.ask(t.Context()); !errors.Is(err, nodestats.ErrEarly) {
		t.Errorf("error before the first list = %v, want ErrEarly", err)
	}
	taker.SetPods(n.Runs())
	if _, err := o.ask(t.Context()); !errors.Is(err, errLoopHangs) {
		t.Errorf("error of a loop that hangs = %v, want errLoopHangs", err)
	}
}

// A request has the disk usage of pods measured, which otherwise only a short disk does: without it, a ranking for a disk is
// based on usage of up to an hour ago.
func TestOutlookMeasuresDisks(t *testing.T) {
	n := nodetest.New(t)
	taker := newTaker(t, n)
	n.Write("host/var/lib/kubelet/pods/"+nodetest.UID+"/volumes/kubernetes.io~empty-dir/data/file", "text")
	host, err := read.OpenHostRoot(filepath.Join(n.Dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	background := read.StartBackground(read.BackgroundOptions{Host: host, Runtime: n.Sources.Client, Proc: n.Proc(), NoNetwork: true, Lazy: true})
	t.Cleanup(background.Close)
	taker.SetPods(n.Runs())
	taker.SetBackground(background)
	o := newOutlook(taker)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case r := <-o.requests:
				r.reply <- &api.Outlook{}
			case <-ended:
				return
			}
		}
	}()
	if _, err := o.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: nodetest.UID}}}}
	for end := time.Now().Add(30 * time.Second); s.Pods[0].EphemeralStorage.Time.IsZero(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the disk usage of the pod was not measured after a request for an outlook")
		}
		background.Fill(time.Now(), &s)
	}
}
