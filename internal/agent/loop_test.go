package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"jettison/internal/garbage"
)

// The whole loop with everything that talks to it at once, ended in the middle of an eviction: nothing races, hangs or stays behind.
func TestTheLoopEndsInTheMiddleOfAll(t *testing.T) {
	n := newTestNode(t)
	n.a.o.Config.Socket = ""
	n.a.o.HostRoot = t.TempDir()
	n.runs()
	n.runtime.Change(func() { n.runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	pod := "cgroup/kubepods/besteffort/pod" + uid + "/"
	n.write(pod+"cgroup.kill", "")
	ctx, cancel := context.WithCancel(t.Context())
	stop := n.a.startBackground()
	defer stop()
	go n.a.watcher.run(ctx)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = n.a.State(ctx)
			}
		})
	}
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"uid": %q, "name": "p%d", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}`, uid, i)
			if _, _, err := n.a.store.Put(strings.NewReader(pod), true); err != nil {
				t.Error(err)
				return
			}
		}
	})
	ended := make(chan struct{})
	go func() { n.a.loop(ctx); close(ended) }()
	n.available(90)
	for {
		s, err := n.a.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Underway) > 0 {
			break
		}
	}
	cancel()
	start := time.Now()
	<-ended
	n.a.interrupted()
	n.a.await()
	n.a.evictions.Wait()
	<-n.a.watcher.done
	all.Wait()
	// The call of StopPodSandbox that hangs would take its whole minute, again and again.
	if took := time.Since(start); took > time.Minute/2 || !strings.Contains(n.log.String(), "stopped during an eviction") {
		t.Errorf("ended after %v\n%s", took, n.log)
	}
}

// Memory is given back soon after a list, now and then without one, and never while it may be short or somebody is evicted.
func TestMemoryIsGivenBack(t *testing.T) {
	n := newTestNode(t)
	start := time.Now()
	for name, c := range map[string]struct {
		since     time.Duration
		listed    bool
		mib       int
		evictions int
		want      bool
	}{
		"after a list":         {trimSoonest, true, 900, 0, true},
		"so soon again":        {trimSoonest - 1, true, 900, 0, false},
		"without a list":       {trimEvery - 1, false, 900, 0, false},
		"without one for long": {trimEvery, false, 900, 0, true},
		"it may be short":      {trimEvery, true, 390, 0, false},
		"somebody is evicted":  {trimEvery, true, 900, 1, false},
	} {
		n.available(c.mib)
		n.a.measure(start)
		n.a.underway = map[string]*underway{}
		for i := range c.evictions {
			n.a.underway[fmt.Sprint(i)] = &underway{}
		}
		n.a.trimmed, n.a.untrimmed = start, c.listed
		now := start.Add(c.since)
		if n.a.trim(now); n.a.trimmed.Equal(now) != c.want || c.want && n.a.untrimmed {
			t.Errorf("%s: trimmed %v", name, n.a.trimmed.Sub(start))
		}
	}
	n.a.evictions.Wait()
	for what, come := range map[string]func(){
		"a list":                       func() { n.a.listed(update{}) },
		"a pass of garbage collection": func() { n.a.garbage(start, &garbage.Result{}) },
	} {
		n.a.untrimmed = false
		if come(); !n.a.untrimmed {
			t.Errorf("%s takes memory that nobody gives back", what)
		}
	}
}
