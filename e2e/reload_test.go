package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// configured writes a version of the config as a kubelet updates a ConfigMap: into a new folder, to
// which a symbolic link is switched atomically (k8s.io/kubernetes
// pkg/volume/util/atomic_writer.go).
func (n *node) configured(version, text string) {
	n.t.Helper()
	const folder = "/etc/jettison"
	n.shell("mkdir -p " + folder + "/..v" + version)
	if err := n.WriteFile(n.ctx, folder+"/..v"+version+"/config.yaml", []byte(text)); err != nil {
		n.t.Fatal(err)
	}
	n.shell(fmt.Sprintf("cd %s && ln -s ..v%s ..tmp && mv -T ..tmp ..data && { test -L config.yaml || ln -sfn ..data/config.yaml config.yaml; }",
		folder, version))
}

// reloads asserts what metrics and `jettison status` report of the active configuration: whether it
// is the newest, and how many reloads succeeded and failed.
func (n *node) reloads(newest bool, taken, failed int) {
	n.t.Helper()
	values, _ := n.samples(n.answers("/metrics"))
	good := 0.0
	if newest {
		good = 1
	}
	for name, want := range map[string]float64{
		"jettison_config_last_reload_successful":          good,
		`jettison_config_reloads_total{outcome="taken"}`:  float64(taken),
		`jettison_config_reloads_total{outcome="failed"}`: float64(failed),
	} {
		if got, ok := values[name]; !ok || got != want {
			n.t.Errorf("metric %s = %v, want %v", name, got, want)
		}
	}
	out := n.shell("/usr/local/bin/jettison status; true")
	if says := strings.Contains(out, "the new configuration is invalid, the agent keeps the previous one"); says == newest {
		n.t.Errorf("the newest one holds: %v, and status says\n%s", newest, out)
	}
	if _, err := n.agent.Exec(n.ctx, "/jettison", "health"); err != nil {
		n.t.Errorf("liveness probe after the reload: %v", err)
	}
}

// threshold asserts the hard threshold of memory.available that is in effect.
func (n *node) threshold(size int) {
	n.t.Helper()
	want := fmt.Sprintf("memory.available<%dMi", size)
	for _, s := range n.state().Signals {
		if s.Signal == "memory.available" && slices.Contains(s.Threshold, want) {
			return
		}
	}
	n.t.Errorf("threshold %s is not in effect: %+v", want, n.state().Signals)
}

// The configuration of a running agent changes as a ConfigMap's does. A wrong one leaves the active
// one in effect, and log, metrics and status report that. A right one is in effect immediately,
// also at SIGHUP, and the next eviction uses its threshold. Hold-offs last across reloads while the
// pressure does. Here a soft threshold that is always met, and evicts no pod, keeps the pressure.
func TestPromiseTheConfigurationChangesWhileItRuns(t *testing.T) {
	n := startNode(t)
	const low, high = 100, 220 // MiB
	file := func(hard string) string { return config("%s\n%s", hard, pressed) }
	hard := func(size int) string { return file(fmt.Sprintf("evictionHard: {memory.available: %dMi}", size)) }
	n.configured("1", hard(low))
	n.startAgent("")
	n.agentLogs("runtime events connected", 1)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(280 * mib)
	leaks := func(name string) *vm.Pod { // the gate rejects BestEffort pods
		return n.run(vm.NewPod(name, "16Mi", "", "alloc -rate 20Mi -size 4Gi"))
	}
	first := leaks("first")
	first.Expected = vm.Any // it is restarted
	n.agentLogs("evicted", 1)
	n.expectHeldOff(first)

	n.configured("2", file("evictionHrad: {memory.available: 220Mi}"))
	line := n.agentLogs("configuration reload failed", 1)
	if why := fmt.Sprint(line.Fields["error"]); !strings.Contains(why, `unknown field "evictionHrad": did you mean "evictionHard"?`) {
		t.Errorf("reason of the failed reload = %s, want the wrong field", why)
	}
	n.reloads(false, 0, 1)
	n.threshold(low)
	n.expectHeldOff(first)

	n.configured("3", hard(high))
	line = n.agentLogs("configuration reloaded", 1)
	if changed := fmt.Sprint(line.Fields["changed"]); changed != "[evictionHard]" {
		t.Errorf("changed fields in the log = %s, want the threshold", changed)
	}
	n.reloads(true, 1, 1)
	n.threshold(high)
	n.expectHeldOff(first)

	n.shell("kill -HUP " + n.mainProcess(n.agent.Pod)) // a requested reload without a change
	n.agentLogs("configuration reloaded", 2)
	n.reloads(true, 2, 1)
	n.expectHeldOff(first)

	second := leaks("second")
	stop := n.watchBelow(second, low*mib)
	n.dies(second)
	line = n.agentLogs("evicted", 2)
	if line.Fields["victim"] != second.String() || line.Fields["threshold"] != float64(high*mib) {
		t.Errorf("agent logged %v, want the eviction by the new threshold", line.Fields)
	}
	if s := stop(); s.Crossed != 0 {
		t.Errorf("lowest available memory = %d MiB: the earlier threshold was used", s.Lowest/mib)
	}
	n.expectHeldOff(first)
}

// expectHeldOff asserts that the gate rejects an evicted pod.
func (n *node) expectHeldOff(p *vm.Pod) {
	n.t.Helper()
	if _, err := n.Run(n.ctx, p.Object); err == nil || !strings.Contains(err.Error(), "low on resource: memory") {
		n.t.Errorf("restart of evicted pod %s = %v, want a rejection", p, err)
	}
}
