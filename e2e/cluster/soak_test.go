package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Variables of TestSoak: its duration, without which it is skipped, and its number of nodes.
const (
	hoursVariable = "JETTISON_HOURS"
	nodesVariable = "JETTISON_NODES"
)

// Load of TestSoak. A round is the time in which the nodes renew their Leases once: 10 s, longer on a busy machine.
// In a wave of rounds a group of nodes dies and returns, and pods are evicted: 108 an hour. Each cycle of waves has
// the same groups, so all cycles have the same work on any machine. The first cycle warms the programs up.
const (
	soakNodes     = 1000
	soakNodePods  = 2
	soakGroups    = 20
	soakRounds    = 10 // of a wave
	soakEvictions = 3  // of a wave
	soakHour      = 36 // waves
	soakCycle     = 6  // waves of a cycle, at most
	soakCycles    = 3  // cycles, at least
)

// jettison-cluster nodes replaces the node controllers of 1,000 nodes, of which some die and return all the time,
// and a bridge reports 100 evictions an hour. Every dead node is tainted, every returned one untainted, no living one
// gets a NoExecute taint, and every evicted pod is Failed. In the last cycle both programs use no more memory,
// goroutines and descriptors than in the second one, and in the second half no more CPU time than in the first.
func TestSoak(t *testing.T) {
	hours, err := strconv.ParseFloat(os.Getenv(hoursVariable), 64)
	if err != nil {
		t.Skip("takes hours: run make soak")
	}
	nodes := soakNodes
	if text := os.Getenv(nodesVariable); text != "" {
		if nodes, err = strconv.Atoi(text); err != nil || nodes < 2*soakGroups {
			t.Fatalf("%s = %q, want a number of at least %d", nodesVariable, text, 2*soakGroups)
		}
	}
	waves := max(soakCycles, int(math.Round(hours*soakHour)))
	length := min(waves/soakCycles, soakCycle)
	cycles := waves / length
	s := startSoak(t, nodes)
	for i := range cycles {
		began := time.Now()
		s.cycle(length)
		t.Logf("cycle %d of %d took %v; so far %d nodes died and returned, %d pods were evicted, %d renewals were late, %d failed",
			i+1, cycles, time.Since(began).Round(time.Second), s.died, s.agent.reportedCount(), s.fleet.late.Load(), s.fleet.lost.Load())
		for _, p := range s.programs {
			t.Logf("%-22s %v", p.name, &p.cycles[i])
		}
	}
	for _, p := range s.programs {
		for _, why := range grown(p.cycles) {
			t.Errorf("usage of %s in the last cycle: %s", p.name, why)
		}
	}
}

// soakUse is what a program used in a cycle: the least of its samples, because a sample may meet writes in flight,
// and its CPU time in ms a round. share is the CPU time divided by that of a fixed piece of work in the same cycle: a
// busy machine needs more CPU time for the same work.
type soakUse struct{ rss, anon, goroutines, descriptors, cpu, share float64 }

func (u *soakUse) String() string {
	return fmt.Sprintf("RSS %6.1f MiB, RssAnon %5.1f MiB, %3.0f goroutines, %3.0f descriptors, CPU %6.2f ms a round, %6.3f fixed works",
		u.rss, u.anon, u.goroutines, u.descriptors, u.cpu, u.share)
}

// grown lists what grew beyond its limit: 5 %, and 10 % of CPU time, which differs by 5 % from one cycle to the next
// and is compared by halves. The small figures of the bridge may grow by more, their noise: the garbage of its heap,
// and two milliseconds of CPU time a round, 0.02 % of a core.
func grown(cycles []soakUse) (out []string) {
	half := (len(cycles) + 1) / 2
	first, last := cycles[1], cycles[len(cycles)-1]
	for _, c := range []struct {
		what         string
		first, last  float64
		share, noise float64
	}{
		{"RSS in MiB", first.rss, last.rss, 0.05, 2},
		{"goroutines", first.goroutines, last.goroutines, 0.05, 2},
		{"descriptors", first.descriptors, last.descriptors, 0.05, 2},
		{"CPU time in fixed works a round", meanShare(cycles[1:half]), meanShare(cycles[half:]), 0.1, 0.2},
	} {
		if limit := c.first + max(c.first*c.share, c.noise); c.last > limit {
			out = append(out, fmt.Sprintf("%s grew from %.4g to %.4g, want at most %.4g", c.what, c.first, c.last, limit))
		}
	}
	return out
}

func meanShare(cycles []soakUse) (mean float64) {
	for _, u := range cycles {
		mean += u.share / float64(len(cycles))
	}
	return mean
}

type soak struct {
	t        *testing.T
	c        *Cluster
	fleet    *fleet
	agent    *fakeAgent
	home     *sailor   // the node of the bridge, which does not die
	mortal   []*sailor // the others
	programs []*soakProgram
	work     []float64 // CPU ms of the fixed work at each sample of the cycle
	due      int64     // the number of renewals at the end of the round
	died     int
}

// soakProgram is a program under test.
type soakProgram struct {
	name       string
	pid        int
	goroutines func() (float64, error)
	cycles     []soakUse
}

func startSoak(t *testing.T, nodes int) *soak {
	c, a := Start(t, Options{}), startFakeAgent(t)
	installBridge(t, c)
	for _, name := range []string{"n1", "n2"} { // they have no Lease
		if err := c.Client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	program := installNodes(t, c)
	f := newFleet(t, c, nodes, soakNodePods, scaleGrace)
	s := &soak{t: t, c: c, agent: a, fleet: f, home: f.nodes[0], mortal: f.nodes[1:]}
	r := c.replica(program, "jettison-cluster", nodeAccount, nodesArgs(t, scaleArgs...)...)
	c.awaitLeader(r)
	bridge, counter := runCountedBridge(t, c, a, s.home.name)
	c.Eventually(startDeadline, "the agent knows the pods of its node", a.hasPods(soakNodePods))
	s.programs = []*soakProgram{
		{name: "jettison-cluster nodes", pid: c.pid(r.name), goroutines: r.goroutines},
		{name: "jettison-bridge", pid: bridge.pid, goroutines: counter},
	}
	return s
}

// cycle lives through waves, and adds what each program used.
func (s *soak) cycle(waves int) {
	s.work = nil
	began := s.fleet.renewals.Load()
	for _, p := range s.programs {
		inf := math.Inf(1)
		p.cycles = append(p.cycles, soakUse{inf, inf, inf, inf, -s.clock(processClock(p.pid)), 0})
	}
	each := len(s.mortal) / soakGroups
	for i := range waves {
		s.wave(s.mortal[i*each : (i+1)*each])
	}
	rounds, work := float64(s.fleet.renewals.Load()-began)/float64(len(s.fleet.nodes)), 0.0
	for _, w := range s.work {
		work += w / float64(len(s.work))
	}
	for _, p := range s.programs {
		u := &p.cycles[len(p.cycles)-1]
		u.cpu = (u.cpu + s.clock(processClock(p.pid))) / rounds
		u.share = u.cpu / work
	}
}

// wave lets nodes die and return while pods are evicted.
func (s *soak) wave(dead []*sailor) {
	s.due = s.fleet.renewals.Load()
	s.fleet.silence(dead)
	for range soakEvictions {
		s.evict()
		s.live(2)
	}
	s.await(dead, "dead nodes are tainted and Unknown", func(n *sailor) bool { return !n.executed.IsZero() && !n.unknown.IsZero() })
	s.fleet.resume(dead)
	s.died += len(dead)
	s.live(soakRounds - 2*soakEvictions)
	s.await(s.mortal, "living nodes are untainted and Ready", func(n *sailor) bool { return !n.tainted && n.unknown.IsZero() })
	for _, why := range s.fleet.wrongTaints() {
		s.t.Error(why)
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// await waits until a predicate is true for each of these nodes.
func (s *soak) await(all []*sailor, what string, holds func(*sailor) bool) {
	s.t.Helper()
	const limit = scaleGrace + startDeadline
	if n := s.fleet.await(all, limit, holds); n < len(all) {
		s.t.Fatalf("after %v %d of %d %s, want all", limit, n, len(all), what)
	}
}

// live waits for the ends of rounds, and takes a sample at each.
func (s *soak) live(rounds int) {
	for range rounds {
		s.due += int64(len(s.fleet.nodes))
		s.c.Eventually(startDeadline, "the end of the round", func(context.Context) error {
			if n := s.fleet.renewals.Load(); n < s.due {
				return fmt.Errorf("%d renewals, want %d", n, s.due)
			}
			return nil
		})
		s.work = append(s.work, s.fixedWork())
		for _, p := range s.programs {
			s.sample(p)
		}
	}
}

// evict evicts a pod, waits until it is Failed, and deletes it as the garbage collector of pods does.
func (s *soak) evict() {
	p := runningPod(s.t, s.c, fmt.Sprint("evicted-", s.agent.reportedCount()), s.home.name, nil)
	s.c.Eventually(startDeadline, "the agent knows the pod", s.agent.hasPod(p))
	s.c.Eventually(startDeadline, "the evicted pod is Failed", evicted(s.c, s.agent.reportEvicted(p)))
	now := metav1.NewDeleteOptions(0)
	if err := s.c.Client.CoreV1().Pods(p.Namespace).Delete(s.t.Context(), p.Name, *now); err != nil {
		s.t.Fatal(err)
	}
	s.c.Eventually(startDeadline, "the agent knows that the pod is deleted", s.agent.hasPods(soakNodePods))
}

// sample takes a sample of a program.
func (s *soak) sample(p *soakProgram) {
	rss, anon := mebibytes(p.pid, "VmRSS"), mebibytes(p.pid, "RssAnon")
	goroutines, err := p.goroutines()
	files, unreadable := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err = errors.Join(err, unreadable); err != nil || math.IsNaN(rss+anon) {
		s.t.Fatalf("read memory, goroutines and descriptors of %s: RSS %v, RssAnon %v: %v", p.name, rss, anon, err)
	}
	u := &p.cycles[len(p.cycles)-1]
	u.rss, u.anon = min(u.rss, rss), min(u.anon, anon)
	u.goroutines, u.descriptors = min(u.goroutines, goroutines), min(u.descriptors, float64(len(files)))
}

// processClock returns the clock of a process's CPU time, as clock_getcpuclockid(3) makes it: finer than
// /proc/PID/stat.
func processClock(pid int) int { return ^pid<<3 | 2 }

// clock returns the milliseconds of a clock.
func (s *soak) clock(id int) float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(id), &t); err != nil {
		s.t.Fatalf("read the clock %d of CPU time: %v", id, err)
	}
	return float64(t.Nano()) / 1e6
}

// fixedWork returns the CPU time of a fixed piece of work.
func (s *soak) fixedWork() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := s.clock(unix.CLOCK_THREAD_CPUTIME_ID)
	block := make([]byte, 1<<20)
	for range 16 {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
	return s.clock(unix.CLOCK_THREAD_CPUTIME_ID) - from
}

// goroutineCount matches a program's number of goroutines in its metrics.
var goroutineCount = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// goroutines returns the number of goroutines of a replica.
func (r *replica) goroutines() (float64, error) {
	client := http.Client{Timeout: startDeadline}
	answer, err := client.Get("http://" + r.address + "/metrics")
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	m := goroutineCount.FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("metrics of %s have no go_goroutines (%s)", r.name, answer.Status)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// countedBridge is a file that is added to the bridge, which has no metrics: it writes the number of goroutines to
// each connection to a socket.
const countedBridge = `package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
)

func init() {
	l, err := net.Listen("unix", os.Getenv("JETTISON_GOROUTINES"))
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				panic(err)
			}
			fmt.Fprint(c, runtime.NumGoroutine())
			c.Close()
		}
	}()
}
`

// runCountedBridge runs the bridge with that file, and returns a function that counts its goroutines.
func runCountedBridge(t *testing.T, c *Cluster, a *fakeAgent, node string) (*bridgeRun, func() (float64, error)) {
	t.Helper()
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "count.go"), filepath.Join(dir, "overlay.json")
	added := filepath.Join(moduleRoot(t), "cmd/jettison-bridge/count.go")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{added: source}})
	if err == nil {
		err = errors.Join(os.WriteFile(source, []byte(countedBridge), 0o600), os.WriteFile(overlay, text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(a.socket), "count") // a socket's path is short
	config := c.Bearer(c.NodeToken(bridgeNamespace, bridgeAccount, node))
	run := startBridge(t, buildBridge(t, "-overlay="+overlay), a, node, config, "JETTISON_GOROUTINES="+socket)
	return run, func() (float64, error) {
		conn, err := net.DialTimeout("unix", socket, startDeadline)
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(conn)
		if err = errors.Join(err, conn.Close()); err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	}
}
