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

// Who asks whom a threshold would have evicted is told the pod that goes when it is met, and by what others are protected. Whoever asks
// again within a second gets the same answer: pods are not read for each of them.
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
		t.Fatalf("nothing of memory in %+v", o)
		return nil
	}
	calm := ask(now)
	m := memory(calm)
	if m.Met || m.Withheld != "" || len(m.Ranking) != 3 || m.Limit == 0 || m.Observed == nil {
		t.Fatalf("%+v", m)
	}
	if again := ask(now.Add(fresh / 2)); again != calm {
		t.Error("pods were read again for the second question of a second")
	}
	l.Available(50)
	now = now.Add(2 * time.Second)
	ready := l.measure(now)
	d, _, err := l.choose(t.Context(), now, eviction.LookMemory, &ready)
	if err != nil || len(d.Evictions) != 1 {
		t.Fatalf("%v, %d evictions: %s", err, len(d.Evictions), d.Reason)
	}
	if uid := d.Evictions[0].Pod.PodRef.UID; uid != m.Ranking[0].UID || uid == nodetest.UID {
		t.Errorf("%s goes, and %s was named", uid, m.Ranking[0].UID)
	}
	if o := memory(ask(now.Add(2 * time.Second))); !o.Met || o.Ranking[0].UID != m.Ranking[0].UID {
		t.Errorf("while it is short: %+v", o)
	}
}

// While the next look at the node is due sooner than all pods can be read, a question reads none: it would hold up the kill.
func TestTheOutlookHoldsUpNoLook(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	now := time.Now()
	l.measure(now)
	ask := func() {
		reply := make(chan *api.Outlook, 1)
		now = now.Add(2 * time.Second)
		l.onOutlook(now, reply)
		if o := <-reply; len(o.Thresholds) == 0 {
			t.Errorf("%+v", o)
		}
	}
	ask()
	read := l.looks.Counts().Full.Value()
	if read == 0 {
		t.Fatal("at rest no pod was read")
	}
	l.pace.OnPressure(now.Add(2 * time.Second)) // tasks stall
	l.shown.outlook.took = time.Second
	ask()
	if got := l.looks.Counts().Full.Value(); got != read {
		t.Errorf("%d looks at all pods while tasks stall, want none", got-read)
	}
}

// The loop answers while it runs, and a question to one that hangs ends.
func TestTheOutlookIsAskedFor(t *testing.T) {
	o := newOutlook()
	go func() { (<-o.asks) <- &api.Outlook{DryRun: true} }()
	if got, ok := o.ask().(*api.Outlook); !ok || !got.DryRun {
		t.Errorf("%+v", got)
	}
	if got := o.ask(); got != nil {
		t.Errorf("nobody answers, and it says %v", got)
	}
}
