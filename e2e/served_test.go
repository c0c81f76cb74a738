package e2e

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"jettison/api"
	"jettison/e2e/vm"
)

// answers returns the agent's answer at a path of its socket.
func (n *node) answers(path string) string {
	n.t.Helper()
	text, err := n.AskAgent(n.ctx, path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// samples parses a Prometheus text into samples by name and labels, and HELP and TYPE lines by name
// of family.
func (n *node) samples(text string) (values map[string]float64, families map[string]string) {
	n.t.Helper()
	values, families = map[string]float64{}, map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "# ") {
			families[strings.Fields(line)[2]] += line + "\n"
			continue
		}
		at := strings.LastIndexByte(line, '}') + 1
		if at == 0 {
			at = strings.IndexByte(line, ' ')
		}
		fields := strings.Fields(line[at:]) // a value, and a time
		if len(fields) == 0 {
			n.t.Fatalf("line is not a sample: %q", line)
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			n.t.Fatalf("parse a sample's value: %v in %q", err, line)
		}
		values[line[:at]] = v
	}
	return values, families
}

// resourceTolerances has the largest expected difference between the kubelet's figure and the
// agent's by family, as tolerances has it for Summaries.
var resourceTolerances = map[string]float64{
	"node_cpu_usage_seconds_total": 25, "pod_cpu_usage_seconds_total": 1, "container_cpu_usage_seconds_total": 1,
	"node_memory_working_set_bytes": 48 * mib, "pod_memory_working_set_bytes": 2 * mib, "container_memory_working_set_bytes": 2 * mib,
	"node_swap_usage_bytes":        mib,
	"container_start_time_seconds": 2, // one has it from the runtime, the other from the cgroup
}

// differences returns the resource metrics that only one of kubelet and agent has, or that differ.
// It skips the agent's own pod, because each query costs the agent resources.
func (n *node) differences(kubelet, ours string) (out []string) {
	n.t.Helper()
	theirs, theirFamilies := n.samples(kubelet)
	values, families := n.samples(ours)
	for name, head := range theirFamilies {
		if name != "scrape_error" && families[name] != head && families[name] != "" {
			out = append(out, fmt.Sprintf("%s is %q, of the kubelet %q", name, families[name], head))
		}
	}
	for sample, v := range theirs {
		family, _, _ := strings.Cut(sample, "{")
		if family == "scrape_error" || strings.Contains(sample, n.agent.Object.Name) {
			continue
		}
		got, ok := values[sample]
		if !ok || math.Abs(got-v) > resourceTolerances[family] {
			out = append(out, fmt.Sprintf("%s: the kubelet %v, the agent %v (%v)", sample, v, got, ok))
		}
	}
	slices.Sort(out)
	return out
}

// The agent serves what the kubelet on the same node serves, field by field.
func TestKubeletAndTheSocketAgree(t *testing.T) {
	n := startKubeletNode(t, vm.KubeletOptions{})
	names := n.idlePods()
	n.startAgent(config("staticPodPath: " + vm.StaticPods))
	n.agentLogs("started", 1)
	if text := n.answers(api.PathMetrics); strings.Contains(text, "\nkubelet_") {
		t.Errorf("the agent serves a metric name of the kubelet: %s", text)
	}
	var rows []row
	var wrong []string
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(25 * time.Second) {
		before := n.summary([]byte(n.answers(api.PathSummary)))
		kubelet := n.kubeletSummary()
		resource, err := n.AskKubelet(n.ctx, api.PathResource)
		if err != nil {
			t.Fatal(err)
		}
		wrong = n.differences(string(resource), n.answers(api.PathResource))
		after := n.summary([]byte(n.answers(api.PathSummary)))
		rows = compare(before, comparable(kubelet, n.agent.Object.Name, ""), after) // the socket reports no networks
		missing := missingPods(rows, names)
		if len(missing) == 0 && len(wrong) == 0 && !slices.ContainsFunc(rows, func(r row) bool { return !r.ok }) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("figures of kubelet and socket differ; kubelet has no figures of %v; resource metrics:\n%s", missing, strings.Join(wrong, "\n"))
			break
		}
	}
	var table strings.Builder
	if err := printRows(&table, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures of the kubelet and the agent's socket:\n%s", &table)
}

// scrapers is the number of concurrent metrics clients, each with one scrape per second.
const scrapers = 20

// scrape runs the scrapers until the returned function stops them and returns the number of
// answers.
func (n *node) scrape(b *testing.B) (stop func() (answers int)) {
	var all sync.WaitGroup
	var mu sync.Mutex
	done, answers := make(chan struct{}), 0
	for range scrapers {
		all.Go(func() {
			client := n.AgentClient()
			defer client.CloseIdleConnections()
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				if _, err := vm.Ask(n.ctx, client, api.PathMetrics); err != nil {
					b.Error(err)
				}
				mu.Lock()
				answers++
				mu.Unlock()
				select {
				case <-tick.C:
				case <-done:
					return
				}
			}
		})
	}
	return func() int {
		close(done)
		all.Wait()
		return answers
	}
}

// Limits of how much later the agent may kill while its metrics are scraped, as multiples of the
// time without.
const maxScrapedP50, maxScrapedP95 = 1.2, 1.5

// BenchmarkScrapes measures like BenchmarkReactCrossing, alternately with and without 20 clients
// that read /metrics once a second each, and prints the cost of a scrape.
func BenchmarkScrapes(b *testing.B) {
	r := newReactor(b, vm.Options{MiB: 1536})
	k := r.startReacting("")
	t := newSampledTable(fmt.Sprintf("kernel %s, crossed to kill while %d clients read metrics, ms", r.Kernel, scrapers), "metrics", "p50", "p90", "p99", "max", "count", "wrong")
	// As in BenchmarkReactBesieged: with the scrapers, a leaking pod gets no CPU time on the
	// emulated machine, nor does one that still has to allocate. The scrapers start after the
	// allocation.
	l := load{name: "scraped", pod: holdingPod(1, 128*mib), holds: 128 * mib, headroom: 12 * mib}
	kills, wrong := map[bool][]time.Duration{}, map[bool]faults{false: {}, true: {}}
	for range trials(24) {
		for _, scraped := range []bool{false, true} {
			stop := func() int { return 0 }
			if l.starve = nil; scraped {
				l.starve = func(*vm.Pod) {
					stop() // scrapers of an earlier attempt
					stop = r.scrape(b)
				}
			}
			o := r.try(k, l)
			stop()
			t.sampled(o.Sample)
			if wrong[scraped].add(o.faults); o.Crossed != 0 && o.killed != 0 {
				kills[scraped] = append(kills[scraped], elapsed(o.Crossed, max(o.killed, o.Crossed)))
			}
		}
	}
	at := func(scraped bool, q float64) float64 {
		if len(kills[scraped]) == 0 {
			return 0
		}
		sorted := slices.Sorted(slices.Values(kills[scraped]))
		return float64(sorted[rank(q, len(sorted))])
	}
	for _, scraped := range []bool{false, true} {
		t.row(append(append([]any{map[bool]string{false: "not read", true: "read"}[scraped]}, spread(kills[scraped])...), wrong[scraped])...)
	}
	p50, p95 := at(true, 0.5)/at(false, 0.5), at(true, 0.95)/at(false, 0.95)
	t.note("read / not read: p50 %.2f, at most %.1f; p95 %.2f, at most %.1f", p50, maxScrapedP50, p95, maxScrapedP95)
	t.print()
	r.scrapeCost(b)
	if !(p50 <= maxScrapedP50 && p95 <= maxScrapedP95) { // also true for NaN
		b.Errorf("time to the kill with scrapers: p50 is %.2f and p95 %.2f of those without", p50, p95)
	}
	reportOnce(b)
}

// scrapeCost prints the CPU cost of a scrape: the agent's usage with scrapers, less that without.
func (n *node) scrapeCost(b *testing.B) {
	agent := n.mainProcess(n.agent.Pod)
	ticks := func() float64 { // utime and stime, fields 14 and 15, in hundredths of a second (proc_pid_stat(5))
		f := strings.Fields(n.shell("cat /proc/" + agent + "/stat"))
		user, err1 := strconv.ParseFloat(f[13], 64)
		system, err2 := strconv.ParseFloat(f[14], 64)
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		return user + system
	}
	const long = 30 * time.Second
	began := ticks()
	time.Sleep(long)
	idle := ticks() - began
	stop := n.scrape(b)
	began = ticks()
	time.Sleep(long)
	used := ticks() - began
	answers := stop()
	fmt.Printf("a scrape costs %.2f ms of CPU (%d of them in %v; at rest %.0f ms)\n", (used-idle)*10/float64(answers), answers, long, idle*10)
}
