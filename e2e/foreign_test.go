package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/e2e/vm"
)

// stressor is a row of the table: the arguments of Debian's stress-ng in its own Burstable pod, and
// the expected state of that pod.
type stressor struct {
	what, args string
	// crosses is the signal with the threshold that the stressor crosses without an agent: its pod
	// must die, for that signal. Empty: it crosses none, and no pod may die. The guest's figures
	// decide.
	crosses string
	// orElse is a second signal that it may cross first: the kernel, depending on its version,
	// chooses how many mapped and written pages are in memory or already on disk.
	orElse string
	// notOn is the beginning of a kernel release on which it crosses no threshold.
	notOn string
	// largeShm gives it a memory-backed emptyDir at /dev/shm, as manifests use against the
	// runtime's limit of 64 MiB.
	largeShm bool
	lasts    time.Duration // duration if no pod is expected to die; 0: askLimit
}

const (
	memoryAvailable = "memory.available"
	nodefsAvailable = "nodefs.available"
	nodefsInodes    = "nodefs.inodesFree"
	pidAvailable    = "pid.available"
)

// foreignMargins is the share of the resting node's resources that a stressor may use.
var foreignMargins = map[string]int64{memoryAvailable: 200 * mib, nodefsAvailable: 300 * mib, nodefsInodes: 3000, pidAvailable: 300}

// pidMax is the node's limit of tasks, which makes them short.
const pidMax = 2200

// Each stressor of memory ends as stated: it is dead, or no pod is.
func TestForeignProgramsTakeMemory(t *testing.T) {
	foreign(t, []stressor{
		{what: "heap", args: "--bigheap 1", crosses: memoryAvailable},
		{what: "heap in many pieces", args: "--malloc 2 --malloc-bytes 400M", crosses: memoryAvailable},
		{what: "data segment", args: "--brk 1"},
		{what: "vm", args: "--vm 2 --vm-bytes 450M --vm-keep", crosses: memoryAvailable},
		{what: "clones", args: "--clone 2 --clone-max 64", crosses: memoryAvailable},
		{what: "stack", args: "--stack 2 --stack-fill"},
		{what: "shm, in an emptyDir", args: "--shm 2 --shm-bytes 64M --shm-objs 8", largeShm: true, crosses: memoryAvailable},
		{what: "shm, System V", args: "--shm-sysv 2 --shm-sysv-bytes 128M", crosses: memoryAvailable},
		{what: "shm, not much", args: "--shm 2 --shm-bytes 16M --shm-objs 2"},
		{what: "memfd", args: "--memfd 2 --memfd-bytes 800M", crosses: memoryAvailable},
		{what: "mlock", args: "--mlock 2"},
		{what: "tmpfs, a file without a name", args: "--hdd 1 --hdd-bytes 400M --temp-path /memory", crosses: memoryAvailable},
		{what: "tmpfs, taken at once", args: "--fallocate 1 --fallocate-bytes 400M --temp-path /memory", crosses: memoryAvailable},
		{what: "page cache, written", args: "--hdd 2 --hdd-bytes 60M --temp-path /data"},
		{what: "page cache, read over and over", args: "--readahead 1 --readahead-bytes 250M --temp-path /data", lasts: 25 * time.Second},
		{what: "page cache, sent over and over", args: "--sendfile 1 --sendfile-size 230M --temp-path /data"},
		// Pages that are mapped and written all the time count as used by the kubelet's formula,
		// and cannot be dropped.
		{what: "page cache, mapped and written", args: "--mmap 1 --mmap-file --mmap-bytes 300M --temp-path /data", crosses: memoryAvailable,
			orElse: nodefsAvailable},
		{what: "sockets", args: "--sock 4"},
		{what: "pipes", args: "--pipe 8 --pipe-size 1M"},
	})
}

// Each stressor of disks and tasks ends as stated: it is dead, or no pod is.
func TestForeignProgramsTakeDisksAndTasks(t *testing.T) {
	foreign(t, []stressor{
		{what: "hdd, files without a name", args: "--hdd 2 --hdd-bytes 1G --temp-path /data", crosses: nodefsAvailable},
		{what: "hdd, in the writable layer", args: "--hdd 2 --hdd-bytes 1G --temp-path /tmp", crosses: nodefsAvailable},
		{what: "hdd, not much", args: "--hdd 2 --hdd-bytes 40M --temp-path /data"},
		{what: "files of a mebibyte", args: "--dirmany 2 --dirmany-bytes 1M --temp-path /data", crosses: nodefsAvailable},
		// On 6.1 its children use memory for a while and no disk space, with an agent or without.
		{what: "forks that hold much, without a name", args: "--fork 4 --forkheavy 2 --temp-path /data", crosses: nodefsAvailable, notOn: "6.1."},
		{what: "inodes", args: "--dirmany 2 --temp-path /data", crosses: nodefsInodes},
		{what: "dentries", args: "--dentry 2 --dentries 10000 --temp-path /data", crosses: nodefsInodes},
		{what: "dentries, few", args: "--dentry 1 --dentries 500 --temp-path /data"},
		{what: "forks", args: "--fork 4 --fork-max 48"},
		{what: "zombies", args: "--zombie 2 --zombie-max 500", crosses: pidAvailable},
		{what: "threads", args: "--pthread 2 --pthread-max 800", crosses: pidAvailable},
	})
}

// foreigners is a node with programs of other projects: a redis must answer and keep its keys while
// the stressor runs.
type foreigners struct {
	*node
	redis, clerk *vm.Pod
	config       string
	limits, rest map[string]int64 // by signal: the threshold, and the value at rest
	evictions    int              // that the agent has recorded so far
	oomKills     int64            // of the kernel so far
	stressor     *vm.Pod          // of the row; nil: removed
	failed       bool             // the row before
}

// foreign runs each stressor first without the agent, to find the threshold that it crosses, then
// with it. Thresholds are relative to the free resources at the start, so small loads suffice.
func foreign(t *testing.T, table []stressor) {
	f := &foreigners{node: startNode(t), limits: map[string]int64{}}
	f.shell(fmt.Sprintf("mkdir -p %s && echo %d > /proc/sys/kernel/pid_max", rootDir, pidMax))
	if err := f.ImportForeign(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.startInnocents()
	f.ask(stressor{args: "--brk 1"}) // loads the files of every pod into memory
	f.rest = f.figures()
	for signal, margin := range foreignMargins {
		f.limits[signal] = f.rest[signal] - margin
	}
	t.Logf("at rest: %v, thresholds: %v", f.rest, f.limits)
	release := f.shell("uname -r")
	for i := range table {
		if s := &table[i]; s.notOn != "" && strings.HasPrefix(release, s.notOn) {
			s.crosses = ""
		}
	}
	row := func(phase string, s stressor, do func(stressor)) {
		t.Run(phase+"/"+s.what, func(sub *testing.T) {
			f.t = sub
			defer func() {
				if f.t, f.failed = t, sub.Failed(); f.failed && f.agent != nil {
					sub.Log("agent's log:\n" + f.Tail(f.agent.LogPath("agent"), 25))
				}
			}()
			f.repairNode()
			do(s)
		})
	}
	for _, s := range table {
		row("asked", s, f.expectCrossing)
	}
	f.config = config("evictionHard: {memory.available: %q, nodefs.available: %q, nodefs.inodesFree: %q, pid.available: %q}",
		fmt.Sprint(f.limits[memoryAvailable]), fmt.Sprint(f.limits[nodefsAvailable]), fmt.Sprint(f.limits[nodefsInodes]), fmt.Sprint(f.limits[pidAvailable]))
	f.startAgent(f.config)
	f.rest = f.figures()
	for _, s := range table {
		row("suffered", s, f.runStressor)
	}
}

// repairNode repairs the node after a row that failed, so that the next row is unaffected.
func (f *foreigners) repairNode() {
	f.t.Helper()
	if f.stressor != nil {
		f.ended()
	}
	if f.failed && f.agent != nil { // its state
		f.startCleanAgent()
	}
	f.startInnocents()
	f.settle()
}

// begin starts a row's stressor.
func (f *foreigners) begin(s stressor) *vm.Pod {
	f.t.Helper()
	f.stressor = f.run(s.pod())
	f.stressor.Expected = vm.Any
	return f.stressor
}

// ended kills a row's stressor, if it still lives, and removes it as a kubelet would.
func (f *foreigners) ended() {
	f.t.Helper()
	f.shell("echo 1 > /sys/fs/cgroup/" + f.stressor.Cgroup + "/cgroup.kill || true")
	// The agent also removes an evicted pod's leftovers: one may find files that the other has just
	// removed.
	f.until("the stressor is removed", func() error { return f.stressor.Remove(f.ctx) })
	f.stressor = nil
}

// pod returns the stressor's pod, which may write to /data on disk and to /memory.
func (s stressor) pod() *v1.Pod {
	pod := vm.NewPod("stressor", "64Mi", "", "")
	c := &pod.Spec.Containers[0]
	c.Image, c.Args = vm.ImageForeign, nil
	c.Command = append([]string{"/usr/bin/stress-ng"}, strings.Fields(s.args)...)
	withEmptyDir(withEmptyDir(pod, "data", v1.EmptyDirVolumeSource{}), "memory", tmpfs)
	if s.largeShm {
		withEmptyDir(pod, "shm", tmpfs)
		c.VolumeMounts[len(c.VolumeMounts)-1].MountPath = "/dev/shm"
	}
	return pod
}

// redisPort is redis's port in the node's network.
const redisPort = "6379"

// redisKeys is the number of keys in redis, each with a value of 512 bytes. It keeps them only in
// memory.
const redisKeys = 4000

func redisValue(key int) string { return strings.Repeat(fmt.Sprintf("%08d", key), 64) }

// startInnocents starts redis and a pod that keeps a small file, unless they live.
func (f *foreigners) startInnocents() {
	f.t.Helper()
	alive := func(p *vm.Pod) bool {
		if p == nil {
			return false
		}
		if p.Check(f.ctx) == nil {
			return true
		}
		if err := p.Remove(f.ctx); err != nil {
			f.t.Fatal(err)
		}
		return false
	}
	if !alive(f.clerk) {
		f.clerk = f.run(withEmptyDir(vm.NewPod("clerk", "32Mi", "", "fill -size 32Ki /data/file"), "data", v1.EmptyDirVolumeSource{}))
	}
	if alive(f.redis) {
		return
	}
	pod := vm.NewPod("redis", "64Mi", "", "")
	c := &pod.Spec.Containers[0]
	c.Image, c.Args = vm.ImageForeign, nil
	c.Command = []string{"/usr/bin/redis-server", "--bind", "127.0.0.1", "--port", redisPort, "--save", "", "--appendonly", "no"}
	f.redis = f.run(pod)
	f.until("redis answers", func() error { return f.checkRedis("PING", "+PONG") })
	var set strings.Builder
	for key := range redisKeys {
		fmt.Fprintf(&set, "SET key:%d %s\r\n", key, redisValue(key))
	}
	if err := f.WriteFile(f.ctx, "/run/keys", []byte(set.String()+"QUIT\r\n")); err != nil {
		f.t.Fatal(err)
	}
	f.shell("busybox nc 127.0.0.1 " + redisPort + " < /run/keys > /dev/null; rm /run/keys")
	if err := f.redisKept(); err != nil {
		f.t.Fatal(err)
	}
}

// checkRedis returns nil if redis gives the wanted answer to a command.
func (f *foreigners) checkRedis(command, want string) error {
	out, err := f.Shell(f.ctx, fmt.Sprintf(`printf '%s\r\nQUIT\r\n' | busybox nc 127.0.0.1 %s`, command, redisPort))
	if want += "\r\n+OK\r\n"; err == nil && out != want {
		err = fmt.Errorf("redis answers %q to %s, want %q", out, command, want)
	}
	return err
}

// redisKept returns nil if redis answers and has every key.
func (f *foreigners) redisKept() error {
	const key = redisKeys / 2
	value := redisValue(key)
	return errors.Join(f.checkRedis("PING", "+PONG"), f.checkRedis("DBSIZE", fmt.Sprintf(":%d", redisKeys)),
		f.checkRedis(fmt.Sprintf("GET key:%d", key), fmt.Sprintf("$%d\r\n%s", len(value), value)))
}

// figures returns each signal's value from the guest's own files.
func (f *foreigners) figures() map[string]int64 {
	f.t.Helper()
	m, err := f.Memory(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	var available, size, inodes, tasks int64
	out := f.shell("stat -f -c '%a %S %d' " + rootDir + " && sed 's/.*\\/\\([0-9]*\\) .*/\\1/' /proc/loadavg")
	if _, err := fmt.Sscan(out, &available, &size, &inodes, &tasks); err != nil {
		f.t.Fatalf("parse the figures of the node in %q: %v", out, err)
	}
	return map[string]int64{memoryAvailable: m.Available(), nodefsAvailable: available * size, nodefsInodes: inodes, pidAvailable: pidMax - tasks}
}

// askLimit is how long a stressor that crosses no threshold runs, without the agent and with it.
const askLimit = 8 * time.Second

// expectCrossing asserts that a row crosses the stated threshold on the guest.
func (f *foreigners) expectCrossing(s stressor) {
	f.t.Helper()
	if crosses := f.ask(s); crosses != s.crosses && (crosses == "" || crosses != s.orElse) {
		f.t.Errorf("threshold crossed without the agent = %q, want %q: the row proves nothing", crosses, s.crosses)
	}
}

// ask runs a stressor without the agent and returns the signal with the first threshold that it
// crosses. It ends the stressor immediately then.
func (f *foreigners) ask(s stressor) (crosses string) {
	f.t.Helper()
	p := f.begin(s)
	low := map[string]int64{}
	began := time.Now()
	limit := cmp.Or(s.lasts, askLimit)
	if s.crosses != "" { // the stressor may have waited for the disk
		limit = time.Minute
	}
	for crosses == "" && time.Since(began) < limit {
		now := f.figures()
		for _, signal := range slices.Sorted(maps.Keys(now)) {
			value := now[signal]
			if seen, ok := low[signal]; !ok || value < seen {
				low[signal] = value
			}
			if crosses == "" && value < f.limits[signal] {
				crosses = signal
			}
		}
	}
	if crosses == "" {
		if err := p.Check(f.ctx); err != nil {
			f.t.Errorf("the stressor ended too early: %v\n%s", err, f.Tail(p.LogPath("main"), 10))
		}
	}
	f.ended()
	f.t.Logf("crosses %q after %.1f s; lowest %v", crosses, time.Since(began).Seconds(), low)
	return crosses
}

// settle waits until the node is at rest again. The kernel keeps pages of files that pods have
// read, and the kubelet's formula counts files that were read twice as used, so the harness
// tolerates those.
func (f *foreigners) settle() {
	f.t.Helper()
	f.until("the node is at rest", func() error {
		for signal, now := range f.figures() {
			if now < f.rest[signal]-foreignMargins[signal]/5 {
				f.shell("sync; echo 1 > /proc/sys/vm/drop_caches")
				return fmt.Errorf("%s is %d, want its value at rest: %d", signal, now, f.rest[signal])
			}
		}
		return nil
	})
}

// runStressor runs a stressor with the agent and asserts the row's statements.
func (f *foreigners) runStressor(s stressor) {
	f.t.Helper()
	m, err := f.Memory(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	f.oomKills = m.OOMKills
	began := time.Now()
	p := f.begin(s)
	if s.crosses != "" {
		if err := f.Eventually(f.ctx, 90*time.Second, "the stressor is dead", func(ctx context.Context) error {
			if alive, err := p.Populated(ctx); alive || err != nil {
				return fmt.Errorf("the stressor still lives (%v)", err)
			}
			return nil
		}); err != nil {
			f.t.Error(err)
		}
	} else {
		time.Sleep(cmp.Or(s.lasts, askLimit))
		if err := p.Check(f.ctx); err != nil {
			f.t.Errorf("the stressor ended too early: %v\n%s", err, f.Tail(p.LogPath("main"), 10))
		}
	}
	f.t.Logf("over after %.1f s", time.Since(began).Seconds())
	f.judge(s, p)
	f.ended()
	f.settle()
	f.until("no condition is left", func() error {
		for _, c := range f.state().Conditions {
			if c.Status {
				return fmt.Errorf("node condition %s is still true", c.Type)
			}
		}
		return nil
	})
	f.innocentsLive() // a pod that dies after the stressor died without any reason
	if late := f.recordsSince(0); len(late) > 0 {
		f.t.Errorf("agent evicted %q after the stressor had ended, want none", late)
	}
}

// innocentsLive asserts that the innocent pods live.
func (f *foreigners) innocentsLive() {
	f.t.Helper()
	for _, p := range []*vm.Pod{f.redis, f.clerk, f.agent.Pod} {
		if err := p.Check(f.ctx); err != nil {
			f.t.Errorf("an innocent pod does not live: %v", err)
		}
	}
	if err := f.redisKept(); err != nil {
		f.t.Error(err)
	}
}

// judge checks a row's result with the kernel, the runtime, the innocent pods and the agent's
// records.
func (f *foreigners) judge(s stressor, p *vm.Pod) {
	f.t.Helper()
	f.innocentsLive()
	m, err := f.Memory(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	if m.OOMKills > f.oomKills {
		f.oomMeant = true // reported here, not again by the audit
		lines, err := f.OOMKills(f.ctx)
		f.t.Errorf("the kernel's OOM killer fired %d times (%v):\n%s", m.OOMKills-f.oomKills, err, strings.Join(lines[max(0, len(lines)-3):], "\n"))
	}
	if s.crosses == "" {
		if fresh := f.recordsSince(0); len(fresh) > 0 {
			f.t.Errorf("agent evicted %q, want no eviction", fresh)
		}
		return
	}
	least := 1
	if f.t.Failed() { // the stressor may not be the victim
		least = 0
	} else if err := p.WaitDead(f.ctx); err != nil {
		f.t.Error(err)
	}
	want := []string{fmt.Sprintf("%s %s for %s", p, p.Object.UID, s.crosses)}
	if s.orElse != "" {
		want = append(want, fmt.Sprintf("%s %s for %s", p, p.Object.UID, s.orElse))
	}
	if fresh := f.recordsSince(least); len(fresh) != 1 || !slices.Contains(want, fresh[0]) {
		f.t.Errorf("the agent has evicted %q, want only one of %q", fresh, want)
	}
}

// recordsFile is the guest's path of the agent's records.
const recordsFile = "/var/lib/jettison/records.jsonl"

// recordsSince waits for so many new evictions in the agent's records and returns them as
// "NAMESPACE/NAME UID for SIGNAL".
func (f *foreigners) recordsSince(count int) (fresh []string) {
	f.t.Helper()
	f.until("the agent has recorded what it did", func() error {
		text, err := f.Shell(f.ctx, "cat "+recordsFile+" 2>/dev/null || true")
		if err != nil {
			return err
		}
		var order []string
		seen := map[string]string{}
		for line := range strings.Lines(text) {
			var r api.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return fmt.Errorf("%w: %s", err, line)
			}
			if seen[r.ID] == "" {
				order = append(order, r.ID)
			}
			seen[r.ID] = fmt.Sprintf("%s %s for %s", r.Pod.Title(), r.Pod.UID, r.Signal)
		}
		fresh = nil
		for _, id := range order[min(f.evictions, len(order)):] {
			fresh = append(fresh, seen[id])
		}
		if len(fresh) < count {
			return fmt.Errorf("%d of %d records", len(fresh), count)
		}
		return nil
	})
	f.evictions += len(fresh)
	return fresh
}

// startCleanAgent starts an agent without any earlier state.
func (f *foreigners) startCleanAgent() {
	f.t.Helper()
	if err := f.agent.Remove(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	f.shell("rm -rf /var/lib/jettison")
	f.evictions = 0
	f.startAgent(f.config)
}
