package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"jettison/internal/node/config"
)

// A reservation above the capacity is an error in the agent's own file, with the kubelet's text,
// and a warning in a kubelet's file.
func TestReservationsAreHeldAgainstTheNode(t *testing.T) {
	l := newLoop(t, "", nil)
	const text = "kubeReserved: {memory: 600Mi}\nsystemReserved: {memory: 400Mi}\n" // of 1Gi, with 100Mi of evictionHard
	for _, own := range []bool{true, false} {
		l.o.Config = configOf(t, text)
		if !own {
			l.o.Config.Kind = config.KindKubelet
		}
		doubts, err := l.checkCapacity(t.Context())
		text := ""
		if err != nil {
			text = err.Error()
		}
		for _, d := range doubts {
			text += d.Error()
		}
		const want = `:3: kubeReserved: memory: Resource "memory" has a reservation of 1100Mi but capacity of 1Gi. Expected capacity >= reservation.`
		if (err != nil) != own || (len(doubts) == 0) != own || strings.Count(text, "reservation of") != 1 || !strings.Contains(text, want) {
			t.Errorf("own configuration %v: error %v, doubts %v", own, err, doubts)
		}
	}
	l.o.Config = configOf(t, "systemReserved: {memory: 900Mi}\n")
	if doubts, err := l.checkCapacity(t.Context()); err != nil || len(doubts) > 0 {
		t.Errorf("reservation within the capacity: error %v, doubts %v", err, doubts)
	}
}

// writeControlFiles creates the control files of the node's kubepods, and a /proc without a
// kubelet.
func (l *testLoop) writeControlFiles() {
	for _, name := range []string{"comm", "cgroup", "net/tcp", "net/tcp6"} {
		l.Write("proc/1/"+name, "header\n")
	}
	for name, text := range map[string]string{
		"cgroup.procs": "", "memory.current": "1048576", "memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max",
		"pids.max": "max", "cpu.weight": "100",
	} {
		l.Write("cgroup/kubepods/"+name, text+"\n")
	}
}

func (l *testLoop) memoryMax(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.Dir, "cgroup/kubepods/memory.max"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Node allocatable is written only if the agent's own file enables it; the next agent restores
// settings that it must not write any more.
func TestNodeAllocatableIsWrittenOnlyWhereTheConfigurationSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		dryRun bool
		want   string
	}{
		"by default":               {"systemReserved: {memory: 300Mi}\n", false, "max"},
		"writeAllocatable":         {"writeAllocatable: true\nsystemReserved: {memory: 300Mi}\nkubeReserved: {memory: 24Mi}\n", false, "734003200"},
		"pods are not enforced":    {"writeAllocatable: true\nsystemReserved: {memory: 300Mi}\nenforceNodeAllocatable: [none]\n", false, "1073741824"},
		"a dry run writes nothing": {"writeAllocatable: true\n", true, "max"},
	} {
		l := newLoop(t, c.text, func(o *Options) { o.DryRun = c.dryRun })
		l.writeControlFiles()
		if err := unix.Setxattr(filepath.Join(l.Dir, "cgroup"), "trusted.jettison.try", nil, 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
		l.unlimitNow(t)
		l.b.startLimits(l.loop)
		l.upkeep.limits.Tick(t.Context(), time.Now(), false, l.pods.All())
		if part := l.upkeep.limits; part != nil {
			part.OnResult(<-part.Results())
		}
		if got := l.memoryMax(t); got != c.want {
			t.Errorf("%s: memory.max = %s, want %s\n%s", name, got, c.want, l.Text())
		}
		if c.want == "734003200" {
			if !strings.Contains(l.Text(), `msg="allocatable resources" cpu=`) || !strings.Contains(l.Text(), "memory=600Mi") {
				t.Errorf("%s: allocatable is not logged:\n%s", name, l.Text())
			}
			l.o.Config.WriteAllocatable = false
			l.unlimitNow(t)
			if got := l.memoryMax(t); got != "max" {
				t.Errorf("%s: memory.max without writeAllocatable = %s, want max", name, got)
			}
		}
	}
}

// An agent that cannot rule out a kubelet at start restores an earlier agent's settings as soon as
// it can.
func TestRestoreWaitsForTheKubeletSearch(t *testing.T) {
	l := newLoop(t, "writeAllocatable: true\nsystemReserved: {memory: 300Mi}\n", nil)
	l.writeControlFiles()
	if err := unix.Setxattr(filepath.Join(l.Dir, "cgroup"), "trusted.jettison.try", nil, 0); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	pass := func() {
		l.upkeep.limits.Tick(t.Context(), time.Now(), l.kubelet.Found(), l.pods.All())
		select {
		case r := <-l.upkeep.limits.Results():
			l.upkeep.limits.OnResult(r)
		case <-time.After(time.Minute):
			t.Fatal("no pass of the limits in a minute")
		}
	}
	l.b.startLimits(l.loop)
	pass()
	if got := l.memoryMax(t); got == "max" {
		t.Fatal("memory.max is not limited after the first pass")
	}
	l.o.Config.WriteAllocatable, l.upkeep.limits = false, nil
	comm := filepath.Join(l.Dir, "proc/1/comm") // reading it blocks for a while
	if err := os.Remove(comm); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(comm, 0o600); err != nil {
		t.Fatal(err)
	}
	l.kubelet.LookNow()
	l.unlimitNow(t)
	l.b.startLimits(l.loop)
	if got := l.memoryMax(t); !l.kubelet.Found() || got == "max" || l.upkeep.limits == nil {
		t.Fatalf("kubelet possible %v: memory.max %s, want the limit\n%s", l.kubelet.Found(), got, l.Text())
	}
	held, err := os.OpenFile(comm, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(comm); err != nil {
		t.Fatal(err)
	}
	l.Write("proc/1/comm", "systemd\n")
	_, _ = held.WriteString("systemd\n")
	_ = held.Close()
	l.kubelet.OnResult(<-l.kubelet.Results())
	pass()
	if got := l.memoryMax(t); got != "max" || !strings.Contains(l.Text(), "eventKind=memory restored=2") {
		t.Errorf("memory.max after the restore = %s, want max\n%s", got, l.Text())
	}
}

// A container without a limit is throttled by the pods' share of the node, as in a kubelet, whether
// or not pods are enforced.
func TestThrottlingUsesThePodsShare(t *testing.T) {
	for _, enforce := range []string{"pods", "none"} {
		l := newLoop(t, "memoryQoS: true\nsystemReserved: {memory: 256Mi}\nenforceNodeAllocatable: ["+enforce+"]\n", nil)
		if got := l.nodeShares().Left[v1.ResourceMemory]; got.Value() != 768<<20 {
			t.Errorf("enforce %s: share of the pods = %s, want 768Mi", enforce, got.String())
		}
	}
}

func (l *testLoop) unlimitNow(t *testing.T) {
	t.Helper()
	l.b.o.Config = l.o.Config
	l.b.restoreLimits(t.Context(), l.loop)
}

// Only the systemd of this hierarchy is used.
func TestSystemdTeller(t *testing.T) {
	for mount, want := range map[string]bool{"": true, "/sys/fs/cgroup": true, "/sys/fs/cgroup/": true, "/host/sys/fs/cgroup": false} {
		if b := (&builder{o: Options{CgroupMount: mount}}); (b.systemdTeller() != nil) != want {
			t.Errorf("cgroup mount %q: client for systemd: %v, want %v", mount, b.systemdTeller() != nil, want)
		}
	}
}
