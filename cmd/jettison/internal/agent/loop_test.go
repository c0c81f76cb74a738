package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
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
