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

// A reservation of more than there is ends an agent whose own file has it, with the kubelet's words, and is a doubt where a kubelet's does.
func TestReservationsAreHeldAgainstTheNode(t *testing.T) {
	l := newLoop(t, "", nil)
	const text = "kubeReserved: {memory: 600Mi}\nsystemReserved: {memory: 400Mi}\n" // of 1Gi, with 100Mi of evictionHard
	for _, own := range []bool{true, false} {
		l.o.Config = configOf(t, text)
		if !own {
			l.o.Config.Kind = config.KindKubelet
		}
		doubts, err := l.checkCapacity(t.Context())
		said := ""
		if err != nil {
			said = err.Error()
		}
		for _, d := range doubts {
			said += d.Error()
		}
		const want = `:3: kubeReserved: memory: Resource "memory" has a reservation of 1100Mi but capacity of 1Gi. Expected capacity >= reservation.`
		if (err != nil) != own || (len(doubts) == 0) != own || strings.Count(said, "reservation of") != 1 || !strings.Contains(said, want) {
			t.Errorf("own %v: %v, doubts %v", own, err, doubts)
		}
	}
	l.o.Config = configOf(t, "systemReserved: {memory: 900Mi}\n")
	if doubts, err := l.checkCapacity(t.Context()); err != nil || len(doubts) > 0 {
		t.Errorf("it fits: %v, %v", err, doubts)
	}
}

// control makes the control files of the node's kubepods, and a /proc that no kubelet is in.
func (l *testLoop) control() {
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

// Node allocatable is written where a file of our own says so, and the next agent puts back what it must not write any more.
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
		l.control()
		if err := unix.Setxattr(filepath.Join(l.Dir, "cgroup"), "trusted.jettison.try", nil, 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
		l.unlimitNow(t)
		l.b.limit(l.loop)
		l.upkeep.limits.Tick(t.Context(), time.Now(), false, l.pods.All())
		if part := l.upkeep.limits; part != nil {
			part.OnResult(<-part.Results())
		}
		if got := l.memoryMax(t); got != c.want {
			t.Errorf("%s: %s, want %s\n%s", name, got, c.want, l.Text())
		}
		if c.want == "734003200" {
			if !strings.Contains(l.Text(), "msg=allocatable cpu=") || !strings.Contains(l.Text(), "memory=600Mi") {
				t.Errorf("what is allocatable is not said:\n%s", l.Text())
			}
			l.o.Config.WriteAllocatable = false
			l.unlimitNow(t)
			if got := l.memoryMax(t); got != "max" {
				t.Errorf("not wanted any more: %s", got)
			}
		}
	}
}

// An agent that does not know yet at its start whether a kubelet is here puts back what one before it has left as soon as it knows.
func TestWhatIsLeftIsPutBackOnceNoKubeletIsHere(t *testing.T) {
	l := newLoop(t, "writeAllocatable: true\nsystemReserved: {memory: 300Mi}\n", nil)
	l.control()
	if err := unix.Setxattr(filepath.Join(l.Dir, "cgroup"), "trusted.jettison.try", nil, 0); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	pass := func() {
		l.upkeep.limits.Tick(t.Context(), time.Now(), l.kubelet.Found(), l.pods.All())
		select {
		case r := <-l.upkeep.limits.Results():
			l.upkeep.limits.OnResult(r)
		case <-time.After(time.Minute):
			t.Fatal("no pass")
		}
	}
	l.b.limit(l.loop)
	pass()
	if got := l.memoryMax(t); got == "max" {
		t.Fatal("not limited")
	}
	l.o.Config.WriteAllocatable, l.upkeep.limits = false, nil
	comm := filepath.Join(l.Dir, "proc/1/comm") // which is not read for a while
	if err := os.Remove(comm); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(comm, 0o600); err != nil {
		t.Fatal(err)
	}
	l.kubelet.LookNow()
	l.unlimitNow(t)
	l.b.limit(l.loop)
	if got := l.memoryMax(t); !l.kubelet.Found() || got == "max" || l.upkeep.limits == nil {
		t.Fatalf("a kubelet may be here %v: memory.max %s\n%s", l.kubelet.Found(), got, l.Text())
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
	if got := l.memoryMax(t); got != "max" || !strings.Contains(l.Text(), `msg="restored pod cgroup settings" eventKind=memory restored=2`) {
		t.Errorf("memory.max %s\n%s", got, l.Text())
	}
}

// A container without a limit is throttled by what is left for pods, as a kubelet has it, whether pods are held to that or not.
func TestThrottledByWhatIsLeftForPods(t *testing.T) {
	for _, enforce := range []string{"pods", "none"} {
		l := newLoop(t, "memoryQoS: true\nsystemReserved: {memory: 256Mi}\nenforceNodeAllocatable: ["+enforce+"]\n", nil)
		if got := l.shares().Left[v1.ResourceMemory]; got.Value() != 768<<20 {
			t.Errorf("%s: left %s, want 768Mi", enforce, got.String())
		}
	}
}

func (l *testLoop) unlimitNow(t *testing.T) {
	t.Helper()
	l.b.o.Config = l.o.Config
	l.b.unlimit(t.Context(), l.loop)
}

// Only the systemd of this hierarchy is told.
func TestWhoTellsSystemd(t *testing.T) {
	for mount, want := range map[string]bool{"": true, "/sys/fs/cgroup": true, "/sys/fs/cgroup/": true, "/host/sys/fs/cgroup": false} {
		if b := (&builder{o: Options{CgroupMount: mount}}); (b.teller() != nil) != want {
			t.Errorf("%q", mount)
		}
	}
}
