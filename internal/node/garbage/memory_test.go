package garbage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/internal/agent/podlister"
	"jettison/internal/base/memtest"
	"jettison/internal/base/race"
	"jettison/internal/node/config"
	"jettison/internal/node/selfprotect"
	"jettison/reclaim"
	"jettison/stats/read"
)

// childVariable is set in the process that TestDeadContainersFitTheMemory measures. Its value is
// the runtime's endpoint.
const childVariable = "JETTISON_DEAD"

// stepsVariable sets the number of steps of that process.
const stepsVariable = "JETTISON_STEPS"

// memoryMore bounds the growth of memory, in bytes. The container's limit in
// deploy/base/daemonset.yaml is 64 MiB, and at rest the agent has 28 MiB resident, including its
// program (docs/build/performance.md). Of the other 36 MiB the kernel needs a part for the agent.
// If files read from disk fill the rest, the kernel kills instead of waiting.
const memoryMore = 24 << 20

const dead = 10_000

// deadNode returns a node with 10,000 dead containers that have a kubelet's labels and annotations.
// each is the number of containers per sandbox.
func deadNode(t *testing.T, each int) *critest.Runtime {
	r := critest.Start(t)
	for i := range dead {
		sandbox, c := fmt.Sprintf("%064x", i/each), fmt.Sprintf("%064x", 1<<20+i)
		uid, name := fmt.Sprintf("12345678-1234-1234-1234-%012d", i/each), fmt.Sprintf("nightly-report-28961340-%05d", i/each)
		labels := map[string]string{
			"io.kubernetes.container.name": "main", "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", uidLabel: uid,
		}
		if i%each == 0 {
			r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{
				Id: sandbox, Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: name, Namespace: "default"}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY,
				CreatedAt: int64(i + 1), Labels: labels, Annotations: map[string]string{
					"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z", "kubernetes.io/config.source": "api", "tenant/note": strings.Repeat("x", 300),
				},
			})
		}
		r.Containers = append(r.Containers, &runtimev1.Container{
			Id: c, PodSandboxId: sandbox, Metadata: &runtimev1.ContainerMetadata{Name: "main", Attempt: uint32(i % each)}, State: exited, CreatedAt: int64(i + 1),
			Image: &runtimev1.ImageSpec{Image: fmt.Sprintf("sha256:%064x", i%100)}, ImageRef: fmt.Sprintf("sha256:%064x", i%100), ImageId: fmt.Sprintf("sha256:%064x", i%100),
			Labels: labels, Annotations: map[string]string{
				"io.kubernetes.container.hash": "a1b2c3d4", "io.kubernetes.container.restartCount": "0", "io.kubernetes.pod.terminationGracePeriod": "30",
				"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File",
				"io.kubernetes.container.ports": strings.Repeat(`{"name":"http","containerPort":8080,"protocol":"TCP"}`, 3),
			},
		})
	}
	for i := range 100 {
		r.Images = append(r.Images, &runtimev1.Image{Id: fmt.Sprintf("sha256:%064x", i), Size: 1 << 20, RepoTags: []string{fmt.Sprintf("example.org/i:%d", i)}})
	}
	return r
}

// Garbage collection fits into the agent's memory: its list of pods and a look for garbage at the same time, as at the start.
func TestDeadContainersFitTheMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector multiplies memory")
	}
	if os.Getenv(childVariable) != "" {
		collectAndMeasure(t, os.Getenv(childVariable))
		return
	}
	for _, c := range []struct {
		each    int
		streams bool
		more    int           // additional bytes of each container: 10,000 such containers exceed one answer
		slow    time.Duration // before the runtime sends the list
		steps   int
	}{{1, false, 0, 0, 30}, {1, true, 0, 0, 30}, {dead, false, 0, 0, 30}, {1, false, 1100, 0, 30}, {1, false, 0, 2500 * time.Millisecond, 4}} {
		// On a busy machine Go's collector may run late, so the least of three attempts counts.
		for try := 1; ; try++ {
			r := deadNode(t, c.each)
			for _, one := range r.Containers {
				one.Annotations["io.kubernetes.container.preStopHandler"] = strings.Repeat("x", c.more)
			}
			r.Streams, r.Batch = c.streams, 500
			r.Delay["ListContainers"] = c.slow
			child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
			child.Env = append(os.Environ(), childVariable+"="+r.Endpoint(), stepsVariable+"="+strconv.Itoa(c.steps))
			child.Stderr = os.Stderr
			out, err := child.Output()
			r.Stop()
			var more, steps int
			if at := strings.Index(string(out), "more "); at >= 0 {
				_, _ = fmt.Sscanf(string(out[at:]), "more %d steps %d", &more, &steps)
			}
			t.Logf("%+v: %.1f MiB", c, float64(more)/(1<<20))
			if err == nil && more > memoryMore && try < 3 {
				continue
			}
			if err != nil || more == 0 || more > memoryMore || steps < dead {
				t.Errorf("%+v: %.1f MiB, want at most %d; %d steps, want %d (%v)\n%.2000s",
					c, float64(more)/(1<<20), memoryMore>>20, steps, dead, err, out)
			}
			break
		}
	}
}

// collectAndMeasure lists pods and takes a look at the same time, as the agent does, and prints the memory used.
func collectAndMeasure(t *testing.T, endpoint string) {
	selfprotect.Self(false) // only the bounds of the heap matter here; other settings may be refused
	before := memtest.Bytes(t, "RssAnon:")
	client, err := cri.Dial(endpoint, "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := podlister.New(client, nil)
	list := func() read.Index {
		listing, err := l.Client().List(t.Context())
		if err != nil {
			t.Error(err)
		}
		return read.NewIndex(listing)
	}
	pods := list()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int32
	steps, err := strconv.Atoi(os.Getenv(stepsVariable))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{
		Collect: config.Collect{Policy: reclaim.DefaultPolicy(), Mode: config.ModeAct}, Runtime: client, StateDir: t.TempDir(),
		Known: func() Known {
			if int(asked.Add(1)) == steps { // the fake is slow: a few steps, with new lists, are enough
				cancel()
			}
			return Known{Synced: true}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			pods = list()
		}
	}()
	r := c.Plan(t.Context(), Everything, reclaim.Periodic)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	planned := len(r.Plan.Steps)
	if r = c.Pass(ctx, Everything, reclaim.DiskPressure); r.Count(Removed) == 0 {
		t.Errorf("no object removed, error %v, want some", r.Err)
	}
	<-done
	runtime.KeepAlive(pods)
	// Without the pages of the program itself: it has them at rest too, and they are loaded on first use.
	fmt.Printf("more %d steps %d\n", memtest.Bytes(t, "VmHWM:")-memtest.Bytes(t, "RssFile:")-before, planned)
}
