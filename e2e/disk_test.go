package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// rootDir is the kubelet's folder; its file system is nodefs.
const rootDir = "/var/lib/kubelet"

// disk has the figures of the guest's own statfs of a file system.
type disk struct{ available, inodesFree int64 }

// disk reads the file system of a folder of the guest.
func (n *node) disk(dir string) (d disk) {
	n.t.Helper()
	var size int64
	out := n.shell("mkdir -p " + dir + " && stat -f -c '%a %S %d' " + dir)
	if _, err := fmt.Sscan(out, &d.available, &size, &d.inodesFree); err != nil {
		n.t.Fatalf("read the file system of %s: %q: %v", dir, out, err)
	}
	d.available *= size
	return d
}

// awaitFileSystem waits until the file system of a folder has at least the wanted figures.
func (n *node) awaitFileSystem(dir string, want disk) {
	n.t.Helper()
	n.until(dir+" has what it had", func() error {
		if now := n.disk(dir); now.available < want.available || now.inodesFree < want.inodesFree {
			return fmt.Errorf("%+v, want at least %+v", now, want)
		}
		return nil
	})
}

// writing starts a pod with an emptyDir at /data, on disk, and waits until its behaviours have made
// a file there.
func (n *node) writing(name, behaviour, file string) *vm.Pod {
	n.t.Helper()
	p := n.run(withEmptyDir(vm.NewPod(name, "", "", behaviour), "data", v1.EmptyDirVolumeSource{}))
	n.until(name+" has written", func() error {
		_, err := n.Shell(n.ctx, "test -e "+p.EmptyDir("data")+"/"+file)
		return err
	})
	return p
}

// evictedFor waits for the log line of the agent's first eviction, asserts its signal and pod, and
// returns it.
func (n *node) evictedFor(signal string, victim *vm.Pod) vm.LogLine {
	n.t.Helper()
	line := n.agentLogs("evicted", 1)
	if line.Fields["signal"] != signal || line.Fields["victim"] != victim.String() || line.Fields["uid"] != string(victim.Object.UID) {
		n.t.Errorf("agent logged %v, want the eviction of %s for %s", line.Fields, victim, signal)
	}
	return line
}

// awaitNoLeftovers waits until a kubelet's folders of volumes and logs have no leftovers of a pod.
func (n *node) awaitNoLeftovers(p *vm.Pod) {
	n.t.Helper()
	uid := string(p.Object.UID)
	n.until("nothing is left of "+p.String(), func() error {
		left := n.shell("ls -d " + rootDir + "/pods/" + uid + " /var/log/pods/*" + uid + " 2>/dev/null || true")
		if left != "" {
			return errors.New(strings.TrimSpace(left))
		}
		return nil
	})
}

// A pod fills the node's disk through its emptyDir. The agent evicts it and removes all its files.
// Other pods that write keep theirs.
func TestPromiseNodefsBytesComeBack(t *testing.T) {
	n := startNode(t)
	n.shell("sync")
	before := n.disk(rootDir)
	n.startAgent(config("evictionHard: {memory.available: 100Mi, nodefs.available: %dMi}", before.available/mib-300))
	modest := n.writing("modest", "fill -allocate -size 60Mi /data/file", "file")
	talker := n.run(vm.NewPod("talker", "", "", "log -rate 64Ki"))
	filler := n.writing("filler", "fill -allocate -rate 100Mi -size 600Mi /data/file", "file")
	n.dies(filler)
	line := n.evictedFor("nodefs.available", filler)
	if message, _ := line.Fields["message"].(string); !strings.HasPrefix(message, "The node was low on resource: ephemeral-storage. Threshold quantity: ") {
		t.Errorf("eviction message = %q, want the kubelet's", message)
	}
	n.awaitFileSystem(rootDir, disk{available: before.available - 150*mib})
	n.awaitNoLeftovers(filler)
	n.expectConditionCycle("DiskPressure", line)
	if size := n.number("du -sk " + modest.EmptyDir("data") + " | awk '{print $1}'"); size < 60<<10 {
		t.Errorf("%s has %d KiB left of its 60 MiB", modest, size)
	}
	n.shell("test -s " + talker.LogPath("main"))
}

// One pod uses up the node's inodes, another one bytes. Only the inodes are short, and only the
// first pod is evicted.
func TestNodefsInodesComeBack(t *testing.T) {
	n := startNode(t)
	before := n.disk(rootDir)
	n.startAgent(config("evictionHard: {memory.available: 100Mi, nodefs.inodesFree: %q}", fmt.Sprint(before.inodesFree-4000)))
	n.writing("bytes", "fill -allocate -size 400Mi /data/file", "file")
	few := n.writing("few", "inodes -count 500 /data", "f500")
	many := n.writing("many", "inodes -rate 2000 -count 8000 /data", "f1")
	n.dies(many)
	line := n.evictedFor("nodefs.inodesFree", many)
	n.awaitFileSystem(rootDir, disk{inodesFree: before.inodesFree - 2000})
	n.awaitNoLeftovers(many)
	n.expectConditionCycle("DiskPressure", line)
	if count := n.number("ls " + few.EmptyDir("data") + " | wc -l"); count != 500 {
		t.Errorf("%s has %d files, want 500", few, count)
	}
}

// A pod has so many files that no walk finds them all in time, and then fills the disk. The agent
// evicts it by what it writes, before the disk is full. An idle pod that holds more lives.
func TestPodWithManyFilesFillsTheDisk(t *testing.T) {
	const files = 300_000
	n := startNodeWith(t, vm.Options{MiB: 2048})
	idle := n.writing("idle", "fill -allocate -size 700Mi /data/file", "file")
	many := n.run(withEmptyDir(vm.NewPod("many", "", "", fmt.Sprintf("inodes -count %d /data + fill -on-usr1 -rate 20Mi -size 3Gi /data/file", files)), "data",
		v1.EmptyDirVolumeSource{}))
	n.untilLimit(6*time.Minute, "many has its files", func() error {
		_, err := n.Shell(n.ctx, fmt.Sprintf("test -e %s/f%d", many.EmptyDir("data"), files))
		return err
	})
	n.shell("sync")
	before := n.disk(rootDir)
	n.startAgent(config("evictionHard: {memory.available: 100Mi, nodefs.available: %dMi}", before.available/mib-300))
	n.untilLimit(4*time.Minute, "the agent has measured idle", func() error {
		if e := podOf(n.stats(), "idle").EphemeralStorage; e == nil || e.UsedBytes == nil {
			return errors.New("its usage is unknown")
		}
		return nil
	})
	n.shell("(while sleep 0.2; do stat -f -c %a " + rootDir + "; done > /run/left 2>&1 &)")
	n.shell("kill -USR1 " + n.mainProcess(many))
	n.dies(many)
	if _, err := n.agent.WaitLog(n.ctx, 8*time.Minute, "evicted", 1); err != nil { // an emulated node removes 300,000 files in minutes
		t.Fatal(err)
	}
	line := n.evictedFor("nodefs.available", many)
	t.Logf("evicted: %v", line.Fields["message"])
	if least := n.number("sort -n /run/left | head -n 1"); least == 0 {
		t.Error("the disk was full, want something left")
	}
	n.awaitFileSystem(rootDir, disk{available: before.available - 50*mib})
	n.awaitNoLeftovers(many)
	n.expectConditionCycle("DiskPressure", line)
	if size := n.number("du -sk " + idle.EmptyDir("data") + " | awk '{print $1}'"); size < 700<<10 {
		t.Errorf("idle has %d KiB left of its 700 MiB", size)
	}
}

// Images and writable layers have their own disk. The agent evicts the pod that fills it through
// its writable layer, not the one that uses far more of the other disk.
func TestImagefsOnADiskOfItsOwn(t *testing.T) {
	n := startNodeWith(t, vm.Options{ImageMiB: 768})
	n.ownImageDisk()
	before, nodefs := n.disk(n.Runtime.Root), n.disk(rootDir)
	n.startAgent(config("evictionHard: {memory.available: 100Mi, nodefs.available: %dMi, imagefs.available: %dMi}",
		nodefs.available/mib-1200, before.available/mib-250))
	n.dedicatedImageFs()
	before = n.disk(n.Runtime.Root) // with the agent's image on it
	n.writing("volume", "fill -allocate -size 900Mi /data/file", "file")
	n.run(vm.NewPod("modest", "", "", "fill -allocate -size 30Mi /file"))
	layer := n.run(vm.NewPod("layer", "", "", "fill -allocate -rate 60Mi -size 400Mi /file"))
	n.dies(layer)
	line := n.evictedFor("imagefs.available", layer)
	if message, _ := line.Fields["message"].(string); !strings.HasPrefix(message, "The node was low on resource: ephemeral-storage. Threshold quantity: ") {
		t.Errorf("eviction message = %q, want the kubelet's", message)
	}
	n.awaitFileSystem(n.Runtime.Root, disk{available: before.available - 60*mib})
	n.expectConditionCycle("DiskPressure", line)
}

// ownImageDisk asserts that the runtime's root and the kubelet's are on different file systems.
func (n *node) ownImageDisk() {
	n.t.Helper()
	n.shell("mkdir -p " + rootDir)
	if a, b := n.shell("stat -c %d "+rootDir), n.shell("stat -c %d "+n.Runtime.Root); a == b {
		n.t.Fatalf("%s and %s are both on device %s", rootDir, n.Runtime.Root, a)
	}
}

// dedicatedImageFs asserts that the agent reports two file systems, each with the size that the
// guest reports.
func (n *node) dedicatedImageFs() {
	n.t.Helper()
	s := n.stats()
	for _, f := range []struct {
		dir      string
		capacity *uint64
	}{{rootDir, s.Node.Fs.CapacityBytes}, {n.Runtime.Root, s.Node.Runtime.ImageFs.CapacityBytes}} {
		want := 1024 * n.number("df -k "+f.dir+" | awk 'NR==2 {print $2}'")
		if f.capacity == nil || *f.capacity != want {
			n.t.Fatalf("agent reports %[2]v bytes for the file system of %[1]s, guest has %[3]d", f.dir, f.capacity, want)
		}
	}
}

// Workloads that fill disks and tables change the figures that the scenarios rely on.
func TestTheDisksFill(t *testing.T) {
	n := startNodeWith(t, vm.Options{ImageMiB: 768})
	n.ownImageDisk()
	n.startAgent("", "--dry-run")
	n.dedicatedImageFs()
	type figures struct{ root, image disk }
	now := func() figures { return figures{n.disk(rootDir), n.disk(n.Runtime.Root)} }
	// The runtime writes its own logs and tables, and frees the previous pod's files later.
	const slack, slackInodes = 8 * mib, 64
	for _, c := range []struct {
		name, behaviour string
		root, image     disk // at least so much is used
	}{
		{"written", "fill -size 100Mi /data/file", disk{available: 100 * mib}, disk{}},
		{"allocated", "fill -allocate -size 800Mi /data/file", disk{available: 800 * mib}, disk{}},
		{"files", "inodes -count 5000 /data", disk{inodesFree: 5000}, disk{}},
		{"layer", "fill -allocate -size 300Mi /file", disk{}, disk{available: 300 * mib}},
	} {
		began := time.Now()
		before := now()
		p := n.run(withEmptyDir(vm.NewPod(c.name, "", "", c.behaviour), "data", v1.EmptyDirVolumeSource{}))
		n.until(c.name+" takes what it says", func() error {
			now := now()
			for _, d := range []struct{ before, now, want disk }{{before.root, now.root, c.root}, {before.image, now.image, c.image}} {
				if d.before.available-d.now.available < d.want.available-slack || d.before.inodesFree-d.now.inodesFree < d.want.inodesFree-slackInodes {
					return fmt.Errorf("disk figures = %+v, want those before: %+v", now, before)
				}
			}
			return nil
		})
		took := time.Since(began)
		if err := p.Remove(n.ctx); err != nil {
			t.Fatal(err)
		}
		n.awaitFileSystem(rootDir, disk{before.root.available - slack, before.root.inodesFree - slackInodes})
		n.awaitFileSystem(n.Runtime.Root, disk{before.image.available - slack, before.image.inodesFree - slackInodes})
		t.Logf("%s: %.1f s to fill, back after %.1f s", c.name, took.Seconds(), time.Since(began).Seconds())
	}
}
