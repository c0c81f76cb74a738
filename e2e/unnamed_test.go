package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// A pod fills the disk with a file without a name: unlinked while it is open or mapped. No
// directory walk finds it. The agent evicts the pod that holds it, not another pod with more
// visible files.
func TestFilesWithoutANameAreTheirHolders(t *testing.T) {
	n := startNode(t)
	n.shell("sync")
	before := n.disk(rootDir)
	n.startAgent(config("evictionHard: {memory.available: 100Mi, nodefs.available: %dMi}", before.available/mib-300))
	innocent := n.run(withEmptyDir(vm.NewPod("innocent", "32Mi", "", "fill -size 32Ki /data/file + heartbeat /data/beat"), "data",
		v1.EmptyDirVolumeSource{}))
	for i, c := range []struct{ name, behaviour string }{
		{"layer", "fill -unlink -allocate -rate 100Mi -size 600Mi /file"},
		{"volume", "fill -unlink -allocate -rate 100Mi -size 600Mi /data/file"},
		{"mapped", "fill -unlink -map -size 600Mi /data/file"},
		{"mapped-layer", "fill -unlink -map -size 600Mi /file"},
	} {
		began := time.Now()
		holder := n.run(withEmptyDir(vm.NewPod(c.name, "32Mi", "", c.behaviour), "data", v1.EmptyDirVolumeSource{}))
		holder.Expected = vm.Dies
		line := n.agentLogs("evicted", i+1)
		if line.Fields["signal"] != "nodefs.available" || line.Fields["victim"] != holder.String() {
			t.Fatalf("agent logged %v, want the eviction of %s for nodefs.available", line.Fields, holder)
		}
		n.dies(holder)
		n.awaitFileSystem(rootDir, disk{available: before.available - 150*mib})
		n.until("the gate admits the next pod", func() error {
			for _, c := range n.state().Conditions {
				if c.Status {
					return fmt.Errorf("condition %s is true", c.Type)
				}
			}
			return nil
		})
		t.Logf("%s: evicted %.1f s after its start", c.name, time.Since(began).Seconds())
	}
	n.shell("test -s " + innocent.EmptyDir("data") + "/file")
}

// A file of the node itself fills the disk. No pod holds it, so none is evicted: the node has the
// condition, and the agent logs the reason.
func TestNoPodDiesForAFileOfTheNode(t *testing.T) {
	n := startNode(t)
	n.shell("sync")
	before := n.disk(rootDir)
	n.startAgent(config("evictionHard: {memory.available: 100Mi, nodefs.available: %dMi}", before.available/mib-300))
	n.writing("first", "fill -allocate -size 50Mi /data/file", "file")
	n.writing("second", "fill -size 32Ki /data/file", "file")
	time.Sleep(15 * time.Second) // the pods' usage is measured while the disk is quiet
	n.shell("/usr/local/bin/workload fill -allocate -size 500Mi /root/file >/dev/null 2>&1 &")
	n.agentLogs("threshold met without eviction", 1)
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		for _, l := range n.agentLog() {
			if l.Msg == "evicted" || l.Msg == "evicting" {
				t.Fatalf("agent evicts %s for a file of the node: %v", l.Fields["victim"], l.Fields)
			}
		}
	}
	if !slices.ContainsFunc(n.agentLog(), func(l vm.LogLine) bool {
		return strings.Contains(fmt.Sprint(l.Fields["reason"]), "something else uses the rest")
	}) {
		t.Error("agent logged no reason for not evicting a pod")
	}
}
