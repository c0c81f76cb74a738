package podlister

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/internal/base/memtest"
	"jettison/internal/base/race"
	"jettison/internal/node/selfprotect"
	"jettison/stats/read"
)

// childVariable holds the runtime's endpoint in the child process that
// TestHostileStatusesFitTheMemory measures.
const childVariable = "JETTISON_LISTS"

// The container's limit in deploy/base/daemonset.yaml is 64 MiB, and 28 MiB of the agent are
// resident at rest (docs/build/performance.md): the rest is the additional memory that a process
// may use.
const memoryMore = 36 << 20

// escaped returns a runtime's JSON of a tenant's "<" characters: six bytes for each.
func escaped(n int) string { return strings.Repeat(`\u003c`, n) }

// hostile returns a node of 110 pods, of which ten have the largest values that a tenant can set.
// Environment: 1.3 MB (execve(2) takes 2 MiB), twice in the verbose status. Annotations: 256 KiB
// (k8s.io/apimachinery TotalAnnotationSizeLimitB). Labels: the rest of etcd's 1.5 MiB. A hook's
// command, which the kubelet writes as JSON into an annotation of the container
// (kuberuntime/labels.go): up to the same limit.
func hostile(t *testing.T) *critest.Runtime {
	r := critest.Start(t)
	for i := range 110 {
		s, c, uid := fmt.Sprint("s", i), fmt.Sprint("c", i), fmt.Sprintf("12345678-1234-1234-1234-%012d", i)
		sandbox := &runtimev1.PodSandbox{Id: s, Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: s, Namespace: "default"},
			State: runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: 1}
		container := &runtimev1.Container{Id: c, PodSandboxId: s, Metadata: &runtimev1.ContainerMetadata{Name: "main"},
			State: runtimev1.ContainerState_CONTAINER_RUNNING}
		r.Info[s] = fmt.Sprintf(`{"config":{"linux":{"cgroup_parent":%q}}}`, cgroupOf(uid))
		r.Info[c] = `{"runtimeSpec":{"process":{"oomScoreAdj":900}}}`
		r.Sandboxes, r.Containers = append(r.Sandboxes, sandbox), append(r.Containers, container)
	}
	fill(r, "")
	return r
}

func cgroupOf(uid string) string { return "/kubepods/burstable/pod" + uid }

// fill gives every eleventh pod the largest values, and new IDs as after a recreation.
func fill(r *critest.Runtime, again string) {
	env := `["A=` + escaped(1_300_000) + `"]`
	info := fmt.Sprintf(`{"sandboxID":"s","pid":7,"config":{"envs":%s},"runtimeSpec":{"process":{"env":%[1]s,"oomScoreAdj":900},`+
		`"linux":{"resources":{"memory":{"limit":4096}}}}}`, env)
	sandboxInfo := fmt.Sprintf(`{"pid":7,"config":{"annotations":{"a":"%s"},"linux":{"cgroup_parent":"/kubepods/burstable/podX"}},`+
		`"runtimeSpec":{"annotations":{"a":"%[1]s"}}}`, escaped(256<<10))
	annotations := map[string]string{"tenant/a": strings.Repeat("<", 256<<10), "kubernetes.io/config.source": "api"}
	labels := map[string]string{}
	for i := range 3000 {
		labels[fmt.Sprintf("%s/%d", strings.Repeat("k", 200), i)] = strings.Repeat("v", 63)
	}
	hook := map[string]string{"io.kubernetes.container.preStopHandler": escaped(100_000)}
	for i := 0; i < len(r.Sandboxes); i += 11 {
		sandbox, container := r.Sandboxes[i], r.Containers[i]
		delete(r.Info, sandbox.Id)
		delete(r.Info, container.Id)
		delete(r.ContainerStatuses, container.Id)
		s, c := fmt.Sprint("s", i, again), fmt.Sprint("c", i, again)
		sandbox.Id, container.PodSandboxId, container.Id = s, s, c
		sandbox.Annotations, sandbox.Labels, container.Annotations = annotations, labels, hook
		r.Info[s], r.Info[c] = sandboxInfo, info
		r.ContainerStatuses[c] = &runtimev1.ContainerStatus{Id: c, Metadata: container.Metadata, State: container.State,
			Resources: &runtimev1.ContainerResources{Linux: &runtimev1.LinuxContainerResources{OomScoreAdj: 900}}}
	}
}

// The list of 110 pods, of which ten tenants use the largest values, fits into the agent's memory
// and contains the needed data.
func TestHostileStatusesFitTheMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector multiplies memory")
	}
	if endpoint := os.Getenv(childVariable); endpoint != "" {
		listAndMeasure(t, endpoint)
		return
	}
	for _, streams := range []bool{false, true} {
		r := hostile(t)
		r.Streams, r.Batch = streams, 5000
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), childVariable+"="+r.Endpoint())
		child.Stderr = os.Stderr
		out, err := child.Output()
		var more, pods, unknown int
		at := strings.Index(string(out), "more ")
		if at >= 0 {
			_, _ = fmt.Sscanf(string(out[at:]), "more %d pods %d unknown %d", &more, &pods, &unknown)
		}
		if err != nil || more == 0 || more > memoryMore || pods != 110 || unknown != 0 {
			t.Errorf("streams %v: %.1f MiB, want at most %d; %d pods, %d with unknown requests, want 110 and 0 (%v)\n%.2000s",
				streams, float64(more)/(1<<20), memoryMore>>20, pods, unknown, err, out)
		} else {
			t.Logf("streams %v: %.1f MiB", streams, float64(more)/(1<<20))
		}
		r.Stop()
	}
}

// listAndMeasure lists a few times as the agent does, and prints the memory that it used.
func listAndMeasure(t *testing.T, endpoint string) {
	selfprotect.Self(false) // the limits of the heap matter; refused privileges do not
	before := memtest.Bytes(t, "VmRSS:")
	client, err := cri.Dial(endpoint, "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := New(client, nil)
	var pods read.Index
	for range 3 {
		listing, err := l.Client().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pods = read.NewIndex(listing)
	}
	unknown := 0
	for _, p := range pods {
		if len(p.Containers) != 1 || p.Containers[0].OOMScoreAdj == nil {
			unknown++
		}
	}
	fmt.Printf("more %d pods %d unknown %d\n", memtest.Bytes(t, "VmHWM:")-before, len(pods), unknown)
}
