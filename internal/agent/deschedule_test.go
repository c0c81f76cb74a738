package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
)

// tooOld is a configuration by which the node's pod is too old.
const tooOld = memoryOnly + `
descheduling: {period: 1m, maxAge: 1h, evictUnowned: true, evictLocalStorage: true}
deschedule: `

// misplaced returns a loop on a node without a kubelet with a pod that is too old.
func misplaced(t *testing.T, mode string, change func(*Options)) *testLoop {
	t.Helper()
	l := newLoop(t, tooOld+mode+"\n", change)
	l.findNoKubelet()
	l.onListed(podlister.Update{Pods: l.Runs()})
	return l
}

// A pod that is too old is stopped once, with its own grace period, and its record shows the
// reason.
func TestDeschedulingStopsAnOldPod(t *testing.T) {
	l := misplaced(t, "act", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); l.evictions.Wait() }()
	l.deschedule(ctx, time.Now(), nil)
	if l.manager.Life(nodetest.UID) != nil {
		t.Error("the pod is stopped before the first period has passed")
	}
	now := time.Now().Add(2 * time.Minute)
	l.deschedule(ctx, now, []eviction.Met{{}})
	if l.manager.Life(nodetest.UID) != nil {
		t.Error("the pod is stopped while a threshold is met")
	}
	l.deschedule(ctx, now, nil)
	life := l.manager.Life(nodetest.UID)
	if life == nil {
		t.Fatalf("no pod is stopped after the period\n%s", l.Text())
	}
	if e := life.Eviction(); e.Signal != eviction.SignalDescheduled || e.GracePeriodSeconds != 30 || e.Reason != "Descheduled" ||
		!strings.HasPrefix(e.Message, "PodLifeTime: age ") {
		t.Errorf("eviction of the descheduled pod = %+v", e)
	}
	if text := l.Text(); !strings.Contains(text, `msg="descheduling pod"`) || !strings.Contains(text, "strategy=PodLifeTime") {
		t.Errorf("log of the descheduling: %s", text)
	}
}

// A report, a dry run and any mode next to a kubelet stop no pod, and log the pod they would stop.
func TestDeschedulingReports(t *testing.T) {
	for what, build := range map[string]func() *testLoop{
		"report":  func() *testLoop { return misplaced(t, "report", nil) },
		"dry run": func() *testLoop { return misplaced(t, "act", func(o *Options) { o.DryRun = true }) },
		"with a kubelet": func() *testLoop {
			l := misplaced(t, "act", nil)
			l.Write("proc/812/comm", "kubelet\n")
			l.Write("proc/812/cgroup", "0::/system.slice/kubelet.service\n")
			return l
		},
	} {
		l := build()
		l.deschedule(t.Context(), time.Now().Add(2*time.Minute), nil)
		if text := l.Text(); l.manager.Life(nodetest.UID) != nil || !strings.Contains(text, `msg="pod would be descheduled" victim=default/pod`) {
			t.Errorf("%s: the pod is stopped or not reported: %s", what, text)
		}
	}
	l := misplaced(t, "off", nil)
	l.deschedule(t.Context(), time.Now().Add(time.Hour), nil)
	if strings.Contains(l.Text(), "deschedul") {
		t.Errorf("descheduling that is off is logged: %s", l.Text())
	}
}
