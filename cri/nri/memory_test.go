package nri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"jettison/internal/base/memtest"
	"jettison/internal/base/race"
)

// childVariable is set in the process that TestHostilePodsFitTheMemory measures: the socket that it
// connects to.
const childVariable = "JETTISON_NRI"

// memoryMore is the maximum amount of memory that the plugin may use in addition to its process at
// the start. The agent's container has 64 MiB, of which 28 are resident at rest
// (docs/build/performance.md). Lists of the runtime need 18 at worst (internal/agent/podlister,
// memory_test.go). Both share the memory that awaits garbage collection, so together they need less
// than the sum.
const memoryMore = 20 << 20

// The memory of the plugin is bounded with ten hostile pods among 110. Each has 1.3 MB of
// environment, 256 KiB of annotations and 800 KiB of labels, in messages as large as the runtime
// sends them, and is sent again as an event.
func TestHostilePodsFitTheMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector multiplies memory")
	}
	if socket := os.Getenv(childVariable); socket != "" {
		synchronizeAndMeasure(t, socket)
		return
	}
	socket := socketIn(t)
	r := listen(t, socket)
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), childVariable+"="+socket)
	var out strings.Builder
	child.Stdout, child.Stderr = &out, &out
	check(t, child.Start())
	r.accept()
	r.frame(runtimeConn, rawMessage(1, typeResponse, nil))
	r.call("Configure", &api.ConfigureRequest{RuntimeName: "hand", RuntimeVersion: "1"})
	var hostile []*api.Container
	for i := range 110 {
		p, c := pod(i), container(i, 0, api.ContainerState_CONTAINER_RUNNING)
		if i%11 == 0 {
			p.Annotations["tenant/a"], p.Labels = strings.Repeat("<", 256<<10), map[string]string{"l": strings.Repeat("l", 800<<10)}
			c.Env = []string{"A=" + strings.Repeat("<", 1_300_000)}
			hostile = append(hostile, c)
		}
		r.call("Synchronize", &api.SynchronizeRequest{Pods: []*api.PodSandbox{p}, Containers: []*api.Container{c, c}, More: true})
	}
	r.call("Synchronize", &api.SynchronizeRequest{})
	for i, c := range hostile {
		r.call("PostStartContainer", &api.PostStartContainerRequest{Pod: pod(11 * i), Container: c})
	}
	r.call("RunPodSandbox", &api.RunPodSandboxRequest{Pod: pod(110)})
	err := child.Wait()
	var more, pods int
	if at := strings.Index(out.String(), "more "); at >= 0 {
		_, _ = fmt.Sscanf(out.String()[at:], "more %d pods %d", &more, &pods)
	}
	if err != nil || more <= 0 || more > memoryMore || pods != 111 {
		t.Errorf("%.1f MiB, want at most %d; %d pods, want 111 (%v)\n%.2000s", float64(more)/(1<<20), memoryMore>>20, pods, err, out.String())
	} else {
		t.Logf("%.1f MiB", float64(more)/(1<<20))
	}
}

// synchronizeAndMeasure runs a plugin with the agent's limits of the heap
// (internal/node/selfprotect).
func synchronizeAndMeasure(t *testing.T, socket string) {
	debug.SetMemoryLimit(32 << 20)
	debug.SetGCPercent(30)
	before := memtest.Bytes(t, "VmRSS:")
	p, err := New(Options{Socket: socket})
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	u := wait(t, p, "the last pod", func(u Update) bool { return u.Pods["uid-110"] != nil })
	fmt.Printf("more %d pods %d\n", memtest.Bytes(t, "VmHWM:")-before, len(u.Pods))
	cancel()
	<-done
}
