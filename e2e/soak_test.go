package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// hoursVariable is the duration of TestSoak; without it the test is skipped.
const hoursVariable = "JETTISON_HOURS"

// soakCycle is the time in which all events of TestSoak occur once. The first cycle warms the agent
// up; the second one is compared with the last.
const soakCycle = 10 * time.Minute

// soakGrowth is how much more the agent may use in the last cycle than in the second one.
const soakGrowth = 1.05

// soakFull is the cycle in which all that the agent keeps of the last hour, and the last 32 records,
// are full. RssAnon, which is a quarter of RSS, is compared from here on.
const soakFull = 6

// A node lives with everything that changes it: each second a pod starts and another one stops, each
// minute a pod leaks, and once in ten minutes the configuration changes twice, the runtime is killed
// and restarted, a pod fills the disk, and the clock is stepped and back. Only leakers and fillers
// are evicted. In the last ten minutes the agent has no more memory, goroutines and descriptors than in
// the second ten, and no more anonymous memory than after an hour; in the second half it uses no more
// CPU time than in the first.
func TestSoak(t *testing.T) {
	hours, err := strconv.ParseFloat(os.Getenv(hoursVariable), 64)
	if err != nil {
		t.Skip("takes hours: run make soak")
	}
	cycles := int(time.Duration(hours*float64(time.Hour)) / soakCycle)
	if cycles < 3 {
		t.Fatalf("%s = %v hours has %d whole cycles of %v, want at least 3", hoursVariable, hours, cycles, soakCycle)
	}
	s := startSoak(t)
	tab := newTable(fmt.Sprintf("%d cycles of %v, kernel %s", cycles, soakCycle, s.Kernel), "cycle", "RssAnon MB", "RSS MB",
		"goroutines", "descriptors", "CPU s/min", "per fixed work", "pods", "refused", "leaks", "disks filled")
	var used []soakUse
	for i := range cycles {
		used = append(used, s.cycle())
		s.expectVictims()
		s.expectRanking()
		u := &used[i]
		tab.row(i, decimal(u.anon/1e6), decimal(u.rss/1e6), decimal(u.goroutines), decimal(u.descriptors), decimal(u.cpu),
			fmt.Sprintf("%.3f", u.share), s.churned, s.refused, s.leaked, s.filled)
		t.Logf("cycle %d of %d: %+v", i+1, cycles, *u)
	}
	tab.print()
	first, last := used[1], used[cycles-1]
	anon := used[min(soakFull, cycles-1)].anon
	half := (cycles + 1) / 2
	for _, c := range []struct {
		what        string
		first, last float64
	}{
		{"RSS", first.rss, last.rss}, {"RssAnon", anon, last.anon}, {"goroutines", first.goroutines, last.goroutines},
		{"descriptors", first.descriptors, last.descriptors}, {"CPU time per fixed work, from the first half without the first cycle,", meanShare(used[1:half]), meanShare(used[half:])},
	} {
		if c.last > c.first*soakGrowth {
			t.Errorf("%s grew from %.4g to %.4g, want at most %.0f %% more",
				c.what, c.first, c.last, 100*(soakGrowth-1))
		}
	}
}

func decimal(v float64) string { return fmt.Sprintf("%.1f", v) }

// meanShare returns the mean CPU time per fixed work. That of one cycle differs by 7 % from the next.
func meanShare(cycles []soakUse) (mean float64) {
	for _, u := range cycles {
		mean += u.share / float64(len(cycles))
	}
	return mean
}

// soakUse is what the agent used in a cycle: averages over the minutes, CPU in seconds a minute. share
// is the CPU time divided by that of a fixed piece of work in the same minutes: an emulated node gets
// slower and faster with the load of its host.
type soakUse struct{ anon, rss, goroutines, descriptors, cpu, share float64 }

type soak struct {
	*node
	agentPID int
	config   string

	lives           []*vm.Pod
	last            *vm.Pod // the pod that the next second stops
	victims         []*vm.Pod
	expected        map[string]bool // UIDs of leakers and fillers; true: without a record of its eviction so far
	churned, number int
	refused         int // by the gate, while a condition lasts
	leaked, filled  int
}

func startSoak(t *testing.T) *soak {
	n := startNodeWith(t, vm.Options{MiB: 1536})
	n.shell("sync")
	before := n.disk(rootDir)
	s := &soak{node: n, expected: map[string]bool{}}
	s.config = config("evictionHard: {memory.available: 100Mi, nodefs.available: %dMi}\npodGoneAfter: 1s\ncontainerGCPeriod: 10s\nimageGCPeriod: 10s", before.available/mib-300)
	n.configured("0", s.config)
	n.startAgent("")
	s.agentPID = n.pid(n.mainProcess(n.agent.Pod))
	s.lives = []*vm.Pod{
		n.run(vm.NewPod("idle", "", "", "sleep")),
		n.run(vm.NewPod("holder", "64Mi", "", "alloc -size 200Mi")),
		n.run(vm.NewPod("talker", "16Mi", "", "log -rate 4Ki")),
		n.writing("writer", "fill -allocate -size 60Mi /data/file", "file"),
	}
	return s
}

// cycle lives through one cycle and returns what the agent used.
func (s *soak) cycle() (sum soakUse) {
	minutes := int(soakCycle / time.Minute)
	agent := s.cpu(s.agentPID)
	var work float64
	for minute := range minutes {
		end := time.Now().Add(time.Minute)
		s.begin(minute)
		work += s.fixedWork()
		for next := time.Now(); time.Now().Before(end); next = next.Add(time.Second) {
			s.churn()
			s.bury()
			time.Sleep(time.Until(next.Add(time.Second)))
		}
		for len(s.victims) > 0 {
			s.bury()
			// On a busy host, a leaker takes minutes for the memory of the node.
			if time.Now().After(end.Add(4 * time.Minute)) {
				s.t.Fatalf("%s lives five minutes after it began to use up memory or the disk", s.victims[0])
			}
		}
		u, err := s.Usage(s.ctx, s.agentPID)
		if err != nil {
			s.t.Fatalf("read the usage of the agent's process: %v", err)
		}
		values, _ := s.samples(s.answers("/metrics"))
		sum.anon += float64(u.RSSAnon) / float64(minutes)
		sum.rss += float64(u.RSS) / float64(minutes)
		sum.goroutines += values["go_goroutines"] / float64(minutes)
		sum.descriptors += values["process_open_fds"] / float64(minutes)
	}
	used := s.cpu(s.agentPID) - agent
	sum.cpu, sum.share = used/float64(minutes), used/work
	for _, p := range s.lives {
		if err := p.Check(s.ctx); err != nil {
			s.t.Fatal(err)
		}
	}
	return sum
}

// fixedWork returns the CPU seconds that the guest needs for a fixed piece of work.
func (s *soak) fixedWork() float64 {
	out := s.shell("busybox dd if=/dev/zero bs=1M count=32 2> /dev/null | busybox time -p busybox sha256sum 2>&1")
	_, text, _ := strings.Cut(out, "user ")
	text, _, _ = strings.Cut(text, "\n")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds == 0 {
		s.t.Fatalf("CPU time of the fixed work = %q, want a line with user", out)
	}
	return seconds
}

// cpu returns the CPU seconds that a process has used.
func (s *soak) cpu(pid int) float64 {
	u, err := s.Usage(s.ctx, pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.CPU.Seconds()
}

// begin begins the events of a minute.
func (s *soak) begin(minute int) {
	s.number++
	s.add(vm.NewPod(fmt.Sprint("leaker-", s.number), "", "", "alloc -rate 100Mi -size 4Gi"))
	s.leaked++
	switch minute {
	case 1, 2:
		s.configured(fmt.Sprint(s.number), strings.Replace(s.config, "100Mi", []string{"120Mi", "100Mi"}[minute-1], 1))
		s.shell(fmt.Sprint("kill -HUP ", s.agentPID))
	case 4:
		if err := s.StopRuntime(s.ctx); err != nil {
			s.t.Fatal(err)
		}
		if err := s.StartRuntime(s.ctx); err != nil {
			s.t.Fatal(err)
		}
	case 6:
		s.add(withEmptyDir(vm.NewPod(fmt.Sprint("filler-", s.number), "", "", "fill -allocate -rate 100Mi -size 600Mi /data/file"), "data", v1.EmptyDirVolumeSource{}))
		s.filled++
	case 7:
		s.step(5 * time.Hour)
	case 8:
		s.step(-5 * time.Hour)
	}
}

// add starts a pod that must be evicted.
func (s *soak) add(object *v1.Pod) {
	s.untilLimit(time.Minute, object.Name+" starts", func() error { // the gate may be closed after the last one
		p, err := s.Run(s.ctx, object)
		if err == nil {
			s.victims = append(s.victims, p)
			s.expected[string(p.Object.UID)] = true
		}
		return err
	})
}

// bury removes the victims that are dead.
func (s *soak) bury() {
	left := s.victims[:0]
	for _, p := range s.victims {
		alive, err := p.Populated(s.ctx)
		switch {
		case err != nil:
			s.t.Fatal(err)
		case alive:
			left = append(left, p)
		default:
			s.remove(p)
		}
	}
	s.victims = left
}

func (s *soak) remove(p *vm.Pod) {
	if err := p.Remove(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	p.Expected = vm.Any // there are thousands: the audit must not look at each
}

// churn starts a pod and stops the one before it.
func (s *soak) churn() {
	if s.last != nil {
		// On a busy host, a second is not enough for the first heartbeat.
		s.untilLimit(time.Minute, s.last.String()+" lives", func() error { return s.last.Check(s.ctx) })
		s.remove(s.last)
		s.last = nil
	}
	p, err := s.Run(s.ctx, vm.NewPod(fmt.Sprint("churn-", s.churned), "8Mi", "", "sleep"))
	switch {
	case err == nil:
		s.last = p
		s.churned++
	case strings.Contains(err.Error(), "jettison"): // the gate
		s.refused++
	default:
		s.t.Fatal(err)
	}
}

// expectRanking asserts that the agent soon ranks no dead pod any more.
func (s *soak) expectRanking() {
	s.t.Helper()
	s.untilLimit(3*time.Minute, "the agent ranks no leaker or filler", func() error {
		outlook, err := s.API().Outlook(s.ctx)
		if err != nil {
			return err
		}
		for _, p := range outlook.Thresholds[0].Ranking {
			if _, dead := s.expected[p.UID]; dead {
				return fmt.Errorf("%s is ranked", p.Pod)
			}
		}
		return nil
	})
}

func (s *soak) step(by time.Duration) {
	s.shell(fmt.Sprintf("busybox date -s @$(($(busybox date +%%s) + %d))", int(by.Seconds())))
}

// expectVictims asserts that every leaker and filler was evicted, and no other pod.
func (s *soak) expectVictims() {
	s.t.Helper()
	records, err := s.API().Records(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range records {
		if _, ok := s.expected[r.Pod.UID]; !ok {
			s.t.Errorf("pod %s/%s was evicted, want only leakers and fillers: %s", r.Pod.Namespace, r.Pod.Name, r.Message)
		}
		s.expected[r.Pod.UID] = false
	}
	for uid, missing := range s.expected {
		if missing {
			s.t.Errorf("pod %s died without a record of its eviction", uid)
		}
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}
