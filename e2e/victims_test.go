package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/vm"
)

// Protected pods use more than all others, and exceed their requests. The agent evicts the one
// ordinary pod, although it uses less.
func TestPromiseSomePodsAreNeverVictims(t *testing.T) {
	n := startNode(t)
	n.startAgent("")

	static := vm.NewPod("static", "", "", "alloc -size 140Mi")
	static.Annotations["kubernetes.io/config.source"] = "file"
	n.holding(static, 140*mib)

	critical := vm.NewPod("critical", "16Mi", "", "alloc -size 130Mi")
	critical.Spec.PriorityClassName = "system-node-critical"
	n.holding(critical, 130*mib)

	system := vm.NewPod("system", "", "", "alloc -size 120Mi")
	system.Namespace = "kube-system"
	n.holding(system, 120*mib)

	// A tenant's own claim that it is critical has no effect.
	tenant := vm.NewPod("tenant", "", "", "alloc -rate 20Mi -size 4Gi")
	tenant.Annotations["jettison/priority"] = "2000000000"
	n.fillTo(110 * mib)
	victim := n.run(tenant)

	n.dies(victim)
	n.expectMemoryAvailable()
	// Without protection each of these would rank first: they use more, and exceed their requests.
	// (In the log the victim is first in the ranking.)
	ranking, _ := n.agentLogs("evicted", 1).Fields["ranking"].([]any)
	used := map[any]float64{}
	for _, r := range ranking {
		row, _ := r.(map[string]any)
		used[row["pod"]], _ = row["usage"].(float64)
	}
	for _, protected := range []string{"default/static", "default/critical", "kube-system/system"} {
		if used[protected] <= used["default/tenant"] {
			t.Errorf("%s uses %.0f bytes, the victim %.0f: this run proves nothing", protected, used[protected], used["default/tenant"])
		}
	}
}

// A pod of three containers that ignores SIGTERM, keeps forking while it dies and has many
// processes is killed as a whole.
func TestPromiseAPodThatResistsGoesAsAWhole(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.holding(vm.NewPod("neighbour", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(150 * mib)
	pod := vm.NewPod("resisting", "", "", "ignore-sigterm + fork-dying")
	for _, c := range [][2]string{
		{"many", "ignore-sigterm + processes -count 8 + threads -count 8"},
		{"leaking", "ignore-sigterm + alloc -rate 20Mi -size 4Gi"}, // last: it is evicted when all three run
	} {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c[0], Image: vm.ImageWorkload, Args: strings.Fields(c[1])})
	}
	victim := n.run(pod)
	n.dies(victim)
	n.expectMemoryAvailable()
	n.until("the runtime calls each of its containers killed", func() error { return victim.Ended(n.ctx, 137) })
}

// The runtime reports how a victim ended, and its log has all that it wrote. CRI-O's monitor of a
// container does both. With the systemd driver it has a scope in the pod's slice.
func TestAVictimsExitCodeAndLastLineAreKept(t *testing.T) {
	n := startNodeWith(t, vm.Options{Systemd: crioFolder(t) != ""})
	n.startAgent("")
	n.fillTo(160 * mib)
	victim := n.run(vm.NewPod("leaker", "", "", "stamp -every 1ms -file /beat/stamp + alloc -rate 20Mi -size 4Gi"))
	if monitors := n.shell("find /sys/fs/cgroup/" + victim.Cgroup + " -name 'crio-conmon-*'"); crioFolder(t) != "" && monitors == "" {
		t.Error("no monitor is in the pod's cgroup: this run proves nothing")
	}
	n.dies(victim)
	n.agentLogs("evicted", 1)
	n.until("the runtime calls the container killed", func() error { return victim.Ended(n.ctx, 137) })
	written := n.number("cat /run/beats/" + string(victim.Object.UID) + "/stamp")
	if logged := n.number("tail -n 1 " + victim.LogPath("main") + " | cut -d ' ' -f 4"); logged < written {
		t.Errorf("last line of the log is of %d ns, want %d or later: the container wrote that", logged, written)
	}
}

// Memory on tmpfs counts as the pod's own. If the pod's container holds it, killing the pod frees
// it.
func TestATmpfsHogIsEvicted(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.holding(vm.NewPod("neighbour", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(150 * mib)
	hog := vm.NewPod("hog", "", "", "fill -rate 20Mi -size 56Mi /dev/shm/file + alloc -rate 10Mi -size 4Gi") // /dev/shm has 64 MiB
	victim := n.run(hog)
	n.dies(victim)
	n.expectMemoryAvailable()
	// The memory of files in /dev/shm returns, too, although containerd mounts it until the sandbox is removed.
	line := n.agentLogs("unmounted pod shared memory", 1)
	if bytes, _ := line.Fields["bytes"].(float64); line.Fields["uid"] != string(victim.Object.UID) || bytes < 32*mib {
		t.Errorf("agent logged %v, want the hog's shared memory unmounted", line.Fields)
	}
	if left := n.shell("grep " + victim.Sandbox + "/shm /proc/1/mountinfo; true"); left != "" {
		t.Errorf("shared memory is still mounted: %s", left)
	}
}

// A node with systemd as process 1 and as cgroup driver: slices, scopes, and a victim in them.
func TestALeakerOnANodeWithSystemdIsEvicted(t *testing.T) {
	n := startNodeWith(t, vm.Options{Systemd: true})
	n.startAgent("")
	victim := leakerBesideOthers(n)
	n.dies(victim)
	n.expectMemoryAvailable()
	line := n.agentLogs("evicted", 1)
	if got := line.Fields["victim"]; got != "default/leaker" {
		t.Errorf("evicted pod in the agent's log = %v, want the leaker", got)
	}
	if cgroup, _ := line.Fields["cgroup"].(string); cgroup != victim.Cgroup || !strings.HasSuffix(cgroup, ".slice") {
		t.Errorf("victim's cgroup in the agent's log = %q, want %q", cgroup, victim.Cgroup)
	}
	for _, l := range n.agentLog() {
		// What the threshold should be is measured, and true of a machine that is as slow as it was at that moment.
		advice := strings.HasPrefix(l.Msg, "memory.available hard threshold smaller than needed")
		if l.Fields["level"] != "INFO" && !advice {
			t.Errorf("agent logged a warning or error: %v", l.Fields)
		}
	}
}

// Every look is a full one while pods start and end. The agent has no error and logs none.
func TestPodsComeAndGoUnderTheAgent(t *testing.T) {
	n := startNode(t)
	n.startAgent("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHard: {memory.available: 99%}\n", "--dry-run")
	for range 4 {
		var pods []*vm.Pod
		for _, name := range []string{"a", "b"} {
			pods = append(pods, n.run(vm.NewPod(name, "", "", "processes -count 4")))
		}
		for _, p := range pods {
			if err := p.Remove(n.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range n.agentLog() {
		if level := l.Fields["level"]; level == "ERROR" || l.Msg == "some pods could not be measured" || l.Msg == "source unreadable" && l.Fields["source"] == "memory" {
			t.Errorf("agent logged an unexpected line: %v", l.Fields)
		}
	}
}

// A pod with the UID of a static pod lives, although the runtime does not know it: the form of its
// UID protects it before the agent has its object.
func TestAStaticPodUnknownToTheRuntimeLives(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	if err := n.StopRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	// Made by hand, without the runtime: a cgroup, and a process in it that allocates memory.
	hog := func(uid types.UID, size string) string {
		dir := "/sys/fs/cgroup/kubepods/besteffort/pod" + string(uid)
		n.shell("mkdir -p " + dir)
		if _, err := n.Start(n.ctx, "/tmp/"+string(uid), "/bin/sh", "-c",
			"echo $$ > "+dir+"/cgroup.procs; exec /usr/local/bin/workload alloc -size "+size); err != nil {
			t.Fatal(err)
		}
		n.until("a process is in "+dir, func() error { return n.reads(dir+"/cgroup.events", "populated 1") })
		return dir + "/cgroup.events"
	}
	m, err := n.Memory(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	half := (m.Available() - defaultThreshold) / mib * 6 / 10
	static := hog("0123456789abcdef0123456789abcdef", fmt.Sprintf("%dMi", half+60))
	ordinary := hog("12345678-1234-1234-1234-123456789abc", fmt.Sprintf("%dMi", half))
	n.until("the ordinary pod is dead", func() error { return n.reads(ordinary, "populated 0") })
	if err := n.reads(static, "populated 1"); err != nil {
		t.Error("static pod does not live: ", err)
	}
	if err := n.StartRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.agentLogs("evicted", 1)
}
