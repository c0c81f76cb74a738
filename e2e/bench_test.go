package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"jettison/e2e/vm"
)

// BenchmarkEviction lets a pod leak 20 MiB/s repeatedly on one node. It prints the times from
// threshold to kill and from kill to the memory's return, by the guest's own sampler and clock.
// Only the kill's time comes from the agent.
func BenchmarkEviction(b *testing.B) {
	n := startNode(b)
	n.startAgent("")
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(160 * mib)
	var crossedToKill, killToEmpty, killToBack []time.Duration
	var maxGap int64
	runs := 0
	for b.Loop() {
		runs++
		victim := n.run(leaker())
		stop := n.watch(victim)
		n.dies(victim)
		line := n.agentLogs("evicted", runs)
		s := stop()
		killed := int64(line.Duration("killedAtMonotonic"))
		if s.Crossed == 0 || s.Empty == 0 || s.Back == 0 || line.Fields["victim"] != "default/leaker" {
			b.Fatalf("run %d: incomplete times: sampler %+v, agent %v", runs, s, line.Fields)
		}
		maxGap = max(maxGap, s.MaxGap)
		crossedToKill = append(crossedToKill, time.Duration(killed-s.Crossed))
		killToEmpty = append(killToEmpty, time.Duration(s.Empty-killed))
		killToBack = append(killToBack, time.Duration(s.Back-killed))
		if err := victim.Remove(n.ctx); err != nil {
			b.Fatal(err)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nkernel %s, %d evictions of a pod that leaks 20 MiB/s, ms (sampled every %.1f at worst)\n", n.Kernel, runs, float64(maxGap)/1e6)
	fmt.Fprintln(w, "what\tp50\tp90\tmax\t")
	for _, row := range []struct {
		what  string
		times []time.Duration
	}{{"crossed to kill", crossedToKill}, {"kill to cgroup empty", killToEmpty}, {"kill to memory back", killToBack}} {
		slices.Sort(row.times)
		at := func(q float64) float64 { return float64(row.times[int(q*float64(len(row.times)-1)+0.5)]) / 1e6 }
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t\n", row.what, at(0.5), at(0.9), at(1))
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAtRest prints the agent's cost on an idle node next to the runtime's cost in the same
// time.
func BenchmarkAtRest(b *testing.B) {
	n := startNode(b)
	n.startAgent("")
	for i := range 4 {
		n.holding(vm.NewPod("pod"+strconv.Itoa(i), "32Mi", "", "alloc -size 16Mi"), 16*mib)
	}
	agent := n.mainProcess(n.agent.Pod)
	containerd := strings.TrimSpace(n.shell("echo " + n.RuntimePID()))
	ticks := func(pid string) float64 { // utime and stime, fields 14 and 15, in hundredths of a second (proc_pid_stat(5))
		f := strings.Fields(n.shell("cat /proc/" + pid + "/stat"))
		user, err1 := strconv.ParseFloat(f[13], 64)
		system, err2 := strconv.ParseFloat(f[14], 64)
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		return user + system
	}
	agentBefore, containerdBefore := ticks(agent), ticks(containerd)
	for b.Loop() { // one iteration is ten seconds of rest
		time.Sleep(10 * time.Second)
	}
	seconds := b.Elapsed().Seconds()
	share := func(pid string, before float64) float64 { return (ticks(pid) - before) / seconds } // hundredths a second: per cent
	fmt.Printf("\nat rest for %.0f s with 5 pods: the agent uses %.2f %% of an emulated core, containerd %.2f %%\n%s",
		seconds, share(agent, agentBefore), share(containerd, containerdBefore),
		grep(n.shell("cat /proc/"+agent+"/status"), "VmRSS", "RssAnon", "RssFile", "VmLck", "Threads"))
}

// grep returns the lines that start with one of the words.
func grep(text string, words ...string) (out string) {
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(line, w) }) {
			out += line
		}
	}
	return out
}
