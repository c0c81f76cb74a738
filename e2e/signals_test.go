package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/e2e/vm"
)

// stats runs `jettison stats -o json` in the agent's container, as its user would.
func (n *node) stats(args ...string) v1alpha1.Summary {
	n.t.Helper()
	out, err := n.agent.Exec(n.ctx, append([]string{"/jettison", "stats", "-o", "json"}, args...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	var s v1alpha1.Summary
	if err := json.Unmarshal(out, &s); err != nil {
		n.t.Fatalf("parse the output of jettison stats: %v: %.2000s", err, out)
	}
	return s
}

// number runs a line of shell in the guest that prints a number.
func (n *node) number(line string) uint64 {
	n.t.Helper()
	text := strings.TrimSpace(n.shell(line))
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		n.t.Fatalf("parse the number printed by %s: %v", line, err)
	}
	return v
}

// between compares a figure of a Summary with the guest's own tools, read before and after it.
type between struct {
	what      string
	ask       string // shell that prints the number
	ours      func(v1alpha1.Summary) *uint64
	tolerance uint64
	before    uint64
}

func (n *node) holdAgainst(rows []between) v1alpha1.Summary {
	n.t.Helper()
	for i := range rows {
		rows[i].before = n.number(rows[i].ask)
	}
	s := n.stats()
	for _, r := range rows {
		after := n.number(r.ask)
		low, high := min(r.before, after), max(r.before, after)
		got := r.ours(s)
		switch {
		case got == nil:
			n.t.Errorf("%s: missing in the summary, the guest has %d to %d", r.what, low, high)
		case *got+r.tolerance < low || *got > high+r.tolerance:
			n.t.Errorf("%s: %d in the summary, the guest has %d to %d", r.what, *got, low, high)
		default:
			n.t.Logf("%-44s %12d  guest %d to %d (± %d)", r.what, *got, low, high, r.tolerance)
		}
	}
	return s
}

// podOf finds a pod in a Summary.
func podOf(s v1alpha1.Summary, name string) v1alpha1.PodStats {
	for _, p := range s.Pods {
		if p.PodRef.Name == name {
			return p
		}
	}
	return v1alpha1.PodStats{}
}

// Every figure of `jettison stats` equals that of the guest's own tools.
func TestPromiseStatsAreWhatTheNodeSays(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	guaranteed := n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	onDisk := n.run(withEmptyDir(vm.NewPod("on-disk", "64Mi", "", "fill -size 8Mi /data/file + fill -size 2Mi /layer + sleep"), "data", v1.EmptyDirVolumeSource{}))
	inMemory := n.run(withEmptyDir(vm.NewPod("in-memory", "", "", "fill -size 4Mi /data/file + sleep"), "data", v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}))
	listener := n.run(withOwnNetwork(vm.NewPod("listener", "", "", "net -listen :9000")))
	address, err := listener.IP(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	sender := n.run(withOwnNetwork(vm.NewPod("sender", "", "", "net -send 4Mi -to "+address+":9000")))
	n.until("everything is written and sent", func() error {
		_, sent := n.traffic(sender)
		files := n.shell("du -k " + onDisk.EmptyDir("data") + "/file " + inMemory.EmptyDir("data") + "/file 2>&1 | awk '{s+=$1} END {print s}'")
		if total, _ := strconv.Atoi(strings.TrimSpace(files)); total < 12<<10 || sent < 4*mib {
			return fmt.Errorf("pods have %s KiB written, %d bytes sent", files, sent)
		}
		return nil
	})
	n.shell("sync")
	cgroup := func(p *vm.Pod, file string) string { return "cat /sys/fs/cgroup/" + p.Cgroup + "/" + file }
	stat := func(p *vm.Pod) string { // the pod's working set
		return "echo $(($(" + cgroup(p, "memory.current") + ") - $(awk '/^inactive_file/ {print $2}' /sys/fs/cgroup/" + p.Cgroup + "/memory.stat)))"
	}
	u64 := func(v *int64) *uint64 {
		if v == nil {
			return nil
		}
		u := uint64(*v)
		return &u
	}
	s := n.holdAgainst([]between{
		{"node: memory capacity", "awk '/^MemTotal/ {print $2*1024}' /proc/meminfo", func(s v1alpha1.Summary) *uint64 {
			v := *s.Node.Memory.AvailableBytes + *s.Node.Memory.WorkingSetBytes
			return &v
		}, 0, 0},
		{"node: memory.available", "awk '/^anon |^file / {a+=$2} /^inactive_file/ {a-=$2} END {print " + strconv.FormatUint(n.number("awk '/^MemTotal/ {print $2*1024}' /proc/meminfo"), 10) + "-a}' /sys/fs/cgroup/memory.stat",
			func(s v1alpha1.Summary) *uint64 { return s.Node.Memory.AvailableBytes }, 24 * mib, 0}, // the reading process itself uses 20 MiB
		{"node: nodefs available", "stat -f -c '%a*%S' /var/lib/kubelet | { IFS='*' read a b; echo $((a*b)); }", func(s v1alpha1.Summary) *uint64 { return s.Node.Fs.AvailableBytes }, mib, 0},
		{"node: nodefs capacity", "df -k /var/lib/kubelet | awk 'NR==2 {print $2*1024}'", func(s v1alpha1.Summary) *uint64 { return s.Node.Fs.CapacityBytes }, 0, 0},
		{"node: nodefs inodesFree", "df -i /var/lib/kubelet | awk 'NR==2 {print $4}'", func(s v1alpha1.Summary) *uint64 { return s.Node.Fs.InodesFree }, 64, 0},
		{"node: imagefs available", "stat -f -c '%a*%S' " + n.Runtime.Root + " | { IFS='*' read a b; echo $((a*b)); }", func(s v1alpha1.Summary) *uint64 { return s.Node.Runtime.ImageFs.AvailableBytes }, mib, 0},
		{"node: tasks", "awk '{split($4,a,\"/\"); print a[2]}' /proc/loadavg", func(s v1alpha1.Summary) *uint64 { return u64(s.Node.Rlimit.NumOfRunningProcesses) }, 16, 0}, // threads of the reading process
		{"node: pid_max or threads-max", "sort -n /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | head -1", func(s v1alpha1.Summary) *uint64 { return u64(s.Node.Rlimit.MaxPID) }, 0, 0},
		{"node: CPU seconds", "awk '/^usage_usec/ {print int($2/1000000)}' /sys/fs/cgroup/cpu.stat", func(s v1alpha1.Summary) *uint64 { v := *s.Node.CPU.UsageCoreNanoSeconds / 1e9; return &v }, 1, 0},
		{"guaranteed: working set", stat(guaranteed), func(s v1alpha1.Summary) *uint64 { return podOf(s, "guaranteed").Memory.WorkingSetBytes }, mib, 0},
		{"guaranteed: anon", "awk '/^anon / {print $2}' /sys/fs/cgroup/" + guaranteed.Cgroup + "/memory.stat", func(s v1alpha1.Summary) *uint64 { return podOf(s, "guaranteed").Memory.RSSBytes }, mib, 0},
		{"guaranteed: processes", "cat /sys/fs/cgroup/" + guaranteed.ContainerCgroup(guaranteed.Containers[0]) + "/cgroup.procs | wc -l", func(s v1alpha1.Summary) *uint64 { return podOf(s, "guaranteed").ProcessStats.ProcessCount }, 0, 0},
		{"on-disk: working set", stat(onDisk), func(s v1alpha1.Summary) *uint64 { return podOf(s, "on-disk").Memory.WorkingSetBytes }, mib, 0},
		{"on-disk: volume", "du -sk " + onDisk.EmptyDir("data") + " | awk '{print $1*1024}'", func(s v1alpha1.Summary) *uint64 { return podOf(s, "on-disk").VolumeStats[0].UsedBytes }, 0, 0},
		{"on-disk: writable layer", "du -sk $(awk '$5==\"/\"' /proc/" + n.mainProcess(onDisk) + "/mountinfo | sed 's/.*upperdir=\\([^,]*\\).*/\\1/') | awk '{print $1*1024}'",
			func(s v1alpha1.Summary) *uint64 { return podOf(s, "on-disk").Containers[0].Rootfs.UsedBytes }, 0, 0},
		{"on-disk: logs", "du -sk /var/log/pods/default_on-disk_*/main | awk '{print $1*1024}'", func(s v1alpha1.Summary) *uint64 { return podOf(s, "on-disk").Containers[0].Logs.UsedBytes }, 0, 0},
		{"in-memory: volume", "du -sk " + inMemory.EmptyDir("data") + " | awk '{print $1*1024}'", func(s v1alpha1.Summary) *uint64 { return podOf(s, "in-memory").VolumeStats[0].UsedBytes }, 0, 0},
		{"listener: bytes received", "awk '/eth0/ {print $2}' /proc/" + n.mainProcess(listener) + "/net/dev", func(s v1alpha1.Summary) *uint64 { return podOf(s, "listener").Network.RxBytes }, 0, 0},
		{"sender: bytes sent", "awk '/eth0/ {print $10}' /proc/" + n.mainProcess(sender) + "/net/dev", func(s v1alpha1.Summary) *uint64 { return podOf(s, "sender").Network.TxBytes }, 0, 0},
	})
	if used := podOf(s, "in-memory").EphemeralStorage.UsedBytes; used == nil || *used > mib {
		t.Errorf("volume in memory is counted as disk usage: %v", used)
	}
	if podOf(s, "guaranteed").Network != nil {
		t.Error("a pod on the host's network has figures of its own")
	}
	check, err := n.agent.Exec(n.ctx, "/jettison", "check")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("jettison check:\n%s", check)
	table, err := n.agent.Exec(n.ctx, "/jettison", "stats")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("jettison stats:\n%s", table)
}

// A runtime that hangs, or a file system with a statfs that never returns, makes only its own
// figures missing, and is named.
func TestPromiseMemorySignalsSurviveWhatHangs(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	pod := n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.run(vm.NewPod("besteffort", "", "", "sleep"))
	program := "/proc/" + n.mainProcess(n.agent.Pod) + "/root/jettison" // the only way while the runtime hangs
	release, err := n.HangMount(n.ctx, "/var/lib/dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.WriteFile(n.ctx, "/etc/hangs.yaml", []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nrootDir: /var/lib/dead\n")); err != nil {
		t.Fatal(err)
	}
	if err := n.HangRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	res, err := n.Exec(n.ctx, program, "stats", "-o", "json", "--config", "/etc/hangs.yaml", "--timeout", "2s")
	if err != nil || res.Code != 0 {
		t.Fatalf("jettison stats: exit code %d, %v: %s", res.Code, err, res.Stderr)
	}
	t.Logf("answered after %.1f s; stderr:\n%s", time.Since(began).Seconds(), res.Stderr)
	var s v1alpha1.Summary
	if err := json.Unmarshal(res.Stdout, &s); err != nil {
		t.Fatal(err)
	}
	if s.Node.Memory.AvailableBytes == nil || s.Node.Memory.WorkingSetBytes == nil || s.Node.Rlimit.NumOfRunningProcesses == nil {
		t.Errorf("memory figures of the node = %+v, want them present", s.Node)
	}
	if s.Node.Fs != nil || s.Node.Runtime.ImageFs != nil {
		t.Errorf("figures of the hanging sources = %+v, %+v, want none", s.Node.Fs, s.Node.Runtime.ImageFs)
	}
	measured := false
	for _, p := range s.Pods { // by cgroup names: the runtime has not named the pods
		measured = measured || p.PodRef.UID == string(pod.Object.UID) && p.Memory.WorkingSetBytes != nil && *p.Memory.WorkingSetBytes > 32*mib
	}
	if len(s.Pods) != 3 || !measured {
		t.Errorf("pods of the summary = %+v, want all by their cgroups", s.Pods)
	}
	for _, want := range []string{"statfs /var/lib/dead: no answer for", "get version of runtime", "file system may hang", "image file system of the runtime:"} {
		if !strings.Contains(string(res.Stderr), want) {
			t.Errorf("stderr of jettison stats lacks %q", want)
		}
	}
	res, err = n.Exec(n.ctx, program, "check", "--config", "/etc/hangs.yaml", "--timeout", "2s")
	if err != nil || res.Code != 1 || !strings.Contains(string(res.Stdout), "memory.available") || !strings.Contains(string(res.Stdout), "no answer for") {
		t.Errorf("jettison check: exit code %d, %v\n%s%s", res.Code, err, res.Stdout, res.Stderr)
	}
	t.Logf("check:\n%s%s", res.Stdout, res.Stderr)
	// The agent also continues: it kills a leaking process in a pod's cgroup that the runtime never
	// reported, by reading the kernel's cgroups.
	n.shell("mkdir /sys/fs/cgroup/kubepods/besteffort/podleak")
	leak, err := n.Start(n.ctx, "/var/log/leak.log", "/bin/sh", "-c",
		"echo $$ > /sys/fs/cgroup/kubepods/besteffort/podleak/cgroup.procs && exec /usr/local/bin/workload alloc -rate 50Mi -size 2Gi")
	if err != nil {
		t.Fatal(err)
	}
	n.until("the leak is killed", func() error {
		if err := n.reads("/sys/fs/cgroup/kubepods/besteffort/podleak/cgroup.events", "populated 0"); err != nil {
			return err
		}
		if res, err := n.Exec(n.ctx, "/bin/kill", "-0", strconv.Itoa(leak)); err != nil || res.Code == 0 {
			return fmt.Errorf("the leaking process still runs (%v)", err)
		}
		return nil
	})
	n.expectMemoryAvailable()
	if err := release(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.ResumeRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
}
