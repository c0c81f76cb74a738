package agent

import (
	"testing"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// The outlook names the pod that is evicted when the threshold is met, and the protections of
// others. A second request within a second gets the same answer: pods are not read for each
// request.
func TestTheOutlookNamesTheVictim(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	for i, uid := range []string{"11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"} {
		l.AddPod("kubepods/besteffort/pod"+uid, 100*(1+5*i))
	}
	now := time.Now()
	l.measure(now)
	ask := func(now time.Time) *api.Outlook {
		reply := make(chan *api.Outlook, 1)
		l.onOutlook(now, reply)
		return <-reply
	}
	memory := func(o *api.Outlook) *api.ThresholdOutlook {
		for i := range o.Thresholds {
			if o.Thresholds[i].Signal == stats.SignalMemoryAvailable {
				return &o.Thresholds[i]
			}
		}
		t.Fatalf("the outlook has no threshold of memory: %+v", o)
		return nil
	}
	calm := ask(now)
	m := memory(calm)
	if m.Met || m.NoEvictionReason != "" || len(m.Ranking) != 3 || m.Limit == 0 || m.Observed == nil {
		t.Fatalf("outlook of memory at rest = %+v, want three ranked pods", m)
	}
	if again := ask(now.Add(maxStateAge / 2)); again != calm {
		t.Error("pods were read again for the second request in a second")
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
	if o := memory(ask(now.Add(2 * time.Second))); !o.Met || o.Ranking[0].UID != m.Ranking[0].UID {
		t.Errorf("outlook while memory is short = %+v", o)
	}
}

// If the next look at the node is due before all pods can be read, an outlook reads none: it would
// delay the kill.
func TestTheOutlookDelaysNoLook(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	now := time.Now()
	l.measure(now)
	ask := func() {
		reply := make(chan *api.Outlook, 1)
		now = now.Add(2 * time.Second)
		l.onOutlook(now, reply)
		if o := <-reply; len(o.Thresholds) == 0 {
			t.Errorf("outlook = %+v, want at least one threshold", o)
		}
	}
	ask()
	read := l.looks.Counts().Full.Value()
	if read == 0 {
		t.Fatal("no pod was read for an outlook at rest")
	}
	l.pace.OnPressure(now.Add(2 * time.Second)) // tasks stall
	l.publisher.outlook.took = time.Second
	ask()
	if got := l.looks.Counts().Full.Value(); got != read {
		t.Errorf("%d looks at all pods while tasks stall, want none", got-read)
	}
}

// The loop answers while it runs; a request to a loop that hangs ends without an answer.
func TestOutlookRequests(t *testing.T) {
	o := newOutlook()
	go func() { (<-o.requests) <- &api.Outlook{DryRun: true} }()
	if got, ok := o.ask().(*api.Outlook); !ok || !got.DryRun {
		t.Errorf("outlook = %+v, want that of the loop", got)
	}
	if got := o.ask(); got != nil {
		t.Errorf("outlook of a loop that hangs = %v, want nil", got)
	}
}
