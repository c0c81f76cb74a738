package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"jettison/cgroup"
	"jettison/internal/kill"
)

// After a crash under pressure the first look does not wait for the self-test: it is made once nothing is short, and again if it had to be
// broken off.
func TestTheSelfTestIsMadeAfterThePressure(t *testing.T) {
	n := newTestNode(t)
	tests, works := 0, kill.Report{Rungs: []kill.Result{{Rung: kill.CgroupKill.String(), Outcome: kill.Works, Took: time.Millisecond}}}
	n.a.ladder.test = func(context.Context, *cgroup.FS, string) kill.Report { tests++; return works }
	n.available(90)
	n.a.rehearse(t.Context())
	n.a.rehearseLate(t.Context())
	if n.a.evictions.Wait(); tests != 0 || strings.Count(n.log.String(), "self-test put off") != 1 {
		t.Fatalf("%d tests\n%s", tests, n.log)
	}
	n.a.ladder.test = func(ctx context.Context, _ *cgroup.FS, _ string) kill.Report {
		tests++
		<-ctx.Done()
		return kill.Report{}
	}
	n.available(500)
	n.a.measure(time.Now())
	n.a.rehearseLate(t.Context())
	n.a.rehearseLate(t.Context())                                                             // at most one is under way
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.events", "populated 0\nfrozen 0\n") // nobody is left to evict
	n.available(90)
	n.a.look(t.Context(), time.Now())
	n.a.rehearsedLate(t.Context(), <-n.a.ladder.done)
	if n.a.evictions.Wait(); tests != 1 || strings.Contains(n.log.String(), "msg=self-test ") || strings.Contains(n.log.String(), "no way to kill") {
		t.Fatalf("%d tests\n%s", tests, n.log)
	}
	n.a.ladder.test = func(context.Context, *cgroup.FS, string) kill.Report { tests++; return works }
	n.available(500)
	n.a.measure(time.Now())
	n.a.rehearseLate(t.Context())
	n.a.rehearsedLate(t.Context(), <-n.a.ladder.done)
	n.a.rehearseLate(t.Context())
	if n.a.evictions.Wait(); tests != 2 || strings.Count(n.log.String(), "msg=self-test ") != 1 || n.a.advice.nReturn != 1 {
		t.Errorf("%d tests\n%s", tests, n.log)
	}
}

// The loop itself makes the self-test that was put off.
func TestTheLoopMakesTheSelfTest(t *testing.T) {
	n := newTestNode(t)
	n.runs()
	tested := make(chan struct{})
	n.a.ladder.test = func(context.Context, *cgroup.FS, string) kill.Report { close(tested); return kill.Report{} }
	n.a.ladder.putOff = true
	ctx, cancel := context.WithCancel(t.Context())
	go n.a.watcher.run(ctx)
	ended := make(chan struct{})
	go func() { n.a.loop(ctx); close(ended) }()
	<-tested
	cancel()
	<-ended
	n.a.await()
	<-n.a.watcher.done
}
