package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// Settings of both. The grace period is the default one.
const (
	scaleGrace = 50 * time.Second
	scaleRate  = 20 // nodes a second of a zone
)

var scaleArgs = []string{
	"--node-monitor-grace-period=50s", "--node-eviction-rate=20", "--secondary-node-eviction-rate=20", "--kube-api-qps=1000", "--kube-api-burst=2000",
	"--leader-elect=true",
}

// Both are measured at rest for this long, after a time to settle.
const (
	scaleRest   = 3 * time.Minute
	scaleSettle = 30 * time.Second
)

// BenchmarkNodes compares jettison-cluster nodes with kube-controller-manager running only
// node-lifecycle-controller and taint-eviction-controller, on one API server with the same nodes.
// The benchmark acts as their kubelets. At rest both run at the same time, because neither has to
// write. Then a tenth of the nodes, one zone of three, and all nodes die at the same time, with one
// controller and then with the other. Times fail nothing; a taint on a living node does.
func BenchmarkNodes(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{100, 10}, {1000, 10}, {5000, 10}} {
		b.Run(fmt.Sprint(size.nodes), func(b *testing.B) {
			for range b.N {
				measureNodes(b, size.nodes, size.pods)
			}
		})
	}
}

// controller is one of the two compared programs.
type controller struct {
	name  string // also of its process
	start func()
	users []string // its users at the API server
	col   map[string]string
}

// scale is a run.
type scale struct {
	b    *testing.B
	c    *Cluster
	f    *fleet
	log  *audit
	both []*controller
	rows []string // in the order of the table
}

func measureNodes(b *testing.B, nodes, pods int) {
	log, args := audited(b)
	c := Start(b, Options{Args: map[string][]string{APIServer: args}})
	program := installNodes(b, c)
	s := &scale{b: b, c: c, log: log}
	theirs := &controller{
		name: ControllerManager, start: func() { s.controllerManager() },
		users: []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:node-controller"}, col: map[string]string{},
	}
	ours := &controller{
		name: "jettison-cluster", start: func() { c.replica(program, "jettison-cluster", nodeAccount, nodesArgs(b, scaleArgs...)...) },
		users: []string{nodeAccount.user()}, col: map[string]string{},
	}
	s.both = []*controller{theirs, ours}
	began := time.Now()
	s.f = newFleet(b, c, nodes, pods, scaleGrace)
	b.Logf("%d nodes with %d pods each made within %v", nodes, pods, time.Since(began).Round(time.Second))

	for _, x := range s.both {
		x.start()
	}
	s.rest()
	s.end(ours)
	s.storms(theirs)
	s.end(theirs)
	ours.start()
	time.Sleep(scaleSettle)
	s.storms(ours)
	s.end(ours)
	s.lists()
	s.print()
	b.Logf("renewals over a second late: %d, failed: %d", s.f.late.Load(), s.f.lost.Load())
	for _, why := range s.f.wrongTaints() {
		b.Error(why)
	}
}

// controllerManager starts kube-controller-manager with only the two controllers. Without the
// others no controller makes the objects that Start waits for.
func (s *scale) controllerManager() {
	p := s.c.controllerManager(Options{Controllers: "node-lifecycle-controller,taint-eviction-controller"})
	p.ready = s.c.answers(s.c.url(ControllerManager) + "/healthz")
	p.argv = slices.Concat([]string{s.c.bin + "/" + ControllerManager}, p.argv, scaleArgs)
	if err := s.c.run(s.b.Context(), p); err != nil {
		s.b.Fatal(err)
	}
}

// end stops a controller; its name is free again.
func (s *scale) end(x *controller) {
	i := s.c.find(x.name)
	if err := s.c.processes[i].stop(); err != nil {
		s.b.Error(err)
	}
	s.c.processes = slices.Delete(s.c.processes, i, i+1)
}

// report adds a figure to the table.
func (s *scale) report(x *controller, row, format string, args ...any) {
	if !slices.Contains(s.rows, row) {
		s.rows = append(s.rows, row)
	}
	x.col[row] = fmt.Sprintf(format, args...)
	s.b.Logf("%s: %s: %s", x.name, row, x.col[row])
}

// metric reports a figure for tools that compare runs.
func (s *scale) metric(x *controller, unit string, v float64) { s.b.ReportMetric(v, x.name+"-"+unit) }

func (s *scale) rest() {
	time.Sleep(scaleSettle)
	from := time.Now()
	before := map[string]time.Duration{}
	all := []string{ControllerManager, "jettison-cluster", APIServer, Etcd}
	for _, name := range all {
		before[name] = cpu(s.b, s.c.pid(name))
	}
	time.Sleep(scaleRest)
	to := time.Now()
	share := func(name string) float64 {
		return 100 * (cpu(s.b, s.c.pid(name)) - before[name]).Seconds() / to.Sub(from).Seconds()
	}
	for _, x := range s.both {
		busy := share(x.name)
		s.report(x, "at rest: CPU, % of a core", "%.2f", busy)
		s.metric(x, "rest-cpu-%", busy)
		resident := mebibytes(s.c.pid(x.name), "VmRSS")
		s.report(x, "at rest: RSS, MiB", "%.0f", resident)
		s.metric(x, "rest-rss-MiB", resident)
		s.report(x, "at rest: of it anonymous, MiB", "%.0f", mebibytes(s.c.pid(x.name), "RssAnon"))
		asked := s.requestsBetween(x, from, to)
		s.report(x, "at rest: requests a second, watches aside", "%.2f", float64(len(asked))/to.Sub(from).Seconds())
		s.b.Logf("requests of %s at rest: %v", x.name, counted(asked))
	}
	s.b.Logf("at rest: the API server uses %.0f %% of a core, etcd %.0f %%", share(APIServer), share(Etcd))
}

// requestsBetween returns the requests of a controller in an interval, without watches.
func (s *scale) requestsBetween(x *controller, from, to time.Time) (out []request) {
	for _, user := range x.users {
		for _, r := range s.log.of(user) {
			if r.RequestReceivedTimestamp.After(from) && r.RequestReceivedTimestamp.Before(to) && r.Verb != "watch" {
				out = append(out, r)
			}
		}
	}
	return out
}

func counted(all []request) map[string]int {
	out := map[string]int{}
	for _, r := range all {
		what := r.Verb + " " + r.ObjectRef.Resource
		if r.ObjectRef.Subresource != "" {
			what += "/" + r.ObjectRef.Subresource
		}
		out[what]++
	}
	return out
}

// storms lets nodes die with one controller.
func (s *scale) storms(x *controller) {
	var tenth, zone []*sailor
	for _, n := range s.f.nodes {
		if n.number%10 == 0 {
			tenth = append(tenth, n)
		}
		if n.zone == "z0" {
			zone = append(zone, n)
		}
	}
	s.storm(x, "a tenth dies", tenth)
	s.storm(x, "a zone dies", zone)
	s.doom(x)
	s.report(x, "RSS, MiB, at most", "%.0f", mebibytes(s.c.pid(x.name), "VmHWM"))
}

// gale counts requests and CPU time during an event.
type gale struct {
	s    *scale
	x    *controller
	what string
	from time.Time
	cpu  time.Duration
}

func (s *scale) gale(x *controller, what string) *gale {
	return &gale{s, x, what, time.Now(), cpu(s.b, s.c.pid(x.name))}
}

func (g *gale) end() {
	g.s.report(g.x, g.what+": CPU, s", "%.1f", (cpu(g.s.b, g.s.c.pid(g.x.name)) - g.cpu).Seconds())
	asked := g.s.requestsBetween(g.x, g.from, time.Now())
	g.s.report(g.x, g.what+": requests", "%d", len(asked))
	g.s.b.Logf("requests of %s when %s: %v", g.x.name, g.what, counted(asked))
}

// storm lets nodes die that must all get a NoExecute taint, and reports how much later they have it
// than the rate allows.
func (s *scale) storm(x *controller, what string, dead []*sailor) {
	g := s.gale(x, what)
	s.f.silence(dead)
	limit := scaleGrace + time.Duration(len(dead))*time.Second/scaleRate + 3*time.Minute
	if n := s.f.await(dead, limit, func(n *sailor) bool { return !n.executed.IsZero() && !n.unknown.IsZero() }); n < len(dead) {
		s.b.Errorf("%s, %s: of %d dead nodes %d are tainted", x.name, what, len(dead), n)
	}
	s.f.mu.Lock()
	given := s.f.given
	unknown, tainted, beyond := s.lateness(dead)
	s.f.mu.Unlock()
	s.delays(x, what+": silence due to Unknown", unknown)
	s.delays(x, what+": silence due to NoExecute taint", tainted)
	s.delays(x, what+": taint later than the rate allows", beyond)
	s.metric(x, strings.ReplaceAll(what, " ", "-")+"-beyond-p99-s", at(beyond, 0.99).Seconds())
	if given != len(dead) {
		s.b.Errorf("%s, %s: %d NoExecute taints for %d nodes, want one each", x.name, what, given, len(dead))
	}
	g.end()
	s.report(x, what+": back to well, s", "%.1f", s.f.resume(dead).Seconds())
}

// lateness returns how long after its silence was due each node is Unknown and tainted, and how
// much later the nth of a zone is tainted than the rate allows: a token is available when the first
// is due, and another one each 1/rate from then on. The caller has the fleet's lock.
func (s *scale) lateness(dead []*sailor) (unknown, tainted, beyond []time.Duration) {
	due, had := map[string][]time.Time{}, map[string][]time.Time{}
	for _, n := range dead {
		if n.executed.IsZero() || n.unknown.IsZero() {
			continue
		}
		at := n.renewed.Add(scaleGrace)
		unknown, tainted = append(unknown, n.unknown.Sub(at)), append(tainted, n.executed.Sub(at))
		due[n.zone], had[n.zone] = append(due[n.zone], at), append(had[n.zone], n.executed)
	}
	for zone, all := range due {
		slices.SortFunc(all, time.Time.Compare)
		slices.SortFunc(had[zone], time.Time.Compare)
		var allowed time.Time
		for i, at := range all {
			if next := allowed.Add(time.Second / scaleRate); i > 0 && next.After(at) {
				at = next
			}
			allowed = at
			beyond = append(beyond, had[zone][i].Sub(allowed))
		}
	}
	return unknown, tainted, beyond
}

// doom lets all nodes die. That looks like a failure of the observer, so no node may keep a
// NoExecute taint.
func (s *scale) doom(x *controller) {
	const what = "all die"
	g := s.gale(x, what)
	s.f.silence(s.f.nodes)
	limit := scaleGrace + 5*time.Minute
	found := s.f.await(s.f.nodes, limit, func(n *sailor) bool { return !n.unknown.IsZero() })
	s.report(x, what+": Unknown within five minutes", "%d", found)
	s.f.mu.Lock()
	var unknown []time.Duration
	for _, n := range s.f.nodes {
		if n.unknown.IsZero() {
			continue
		}
		unknown = append(unknown, n.unknown.Sub(n.renewed.Add(scaleGrace)))
	}
	s.f.mu.Unlock()
	time.Sleep(20 * time.Second) // time to remove the taints
	kept := 0
	s.f.mu.Lock()
	for _, n := range s.f.nodes {
		if !n.executed.IsZero() {
			kept++
		}
	}
	given := s.f.given
	s.f.mu.Unlock()
	s.delays(x, what+": silence due to Unknown", unknown)
	s.report(x, what+": NoExecute taints given, kept", "%d, %d", given, kept)
	g.end()
	s.report(x, what+": back to well, s", "%.1f", s.f.resume(s.f.nodes).Seconds())
}

// delays adds p50, p99 and the longest.
func (s *scale) delays(x *controller, row string, all []time.Duration) {
	s.report(x, row+", s: p50, p99, max", "%.2f, %.2f, %.2f", at(all, 0.5).Seconds(), at(all, 0.99).Seconds(), at(all, 1).Seconds())
}

// at returns a quantile by the nearest rank.
func at(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return -1
	}
	sorted := slices.SortedFunc(slices.Values(all), cmp.Compare[time.Duration])
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// lists counts the lists of pods among the requests of both: one at a start, by a list or a watch
// that begins with one.
func (s *scale) lists() {
	for _, x := range s.both {
		n := 0
		for _, user := range x.users {
			for _, r := range s.log.of(user) {
				whole := r.Verb == "list" || r.Verb == "watch" && strings.Contains(r.RequestURI, "sendInitialEvents=true")
				if r.ObjectRef.Resource == "pods" && r.ObjectRef.Namespace == "" && whole && r.ResponseStatus.Code == http.StatusOK {
					n++
				}
			}
		}
		starts := 1
		if x.name != ControllerManager {
			starts = 2
		}
		s.report(x, "lists of pods after the start", "%d", n-starts)
	}
}

func (s *scale) print() {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%d nodes\t%s\t%s\n", len(s.f.nodes), s.both[0].name, s.both[1].name)
	for _, row := range s.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", row, s.both[0].col[row], s.both[1].col[row])
	}
	_ = w.Flush()
	fmt.Fprintf(&out, "\n| %d nodes | %s | %s |\n| --- | ---: | ---: |\n", len(s.f.nodes), s.both[0].name, s.both[1].name)
	for _, row := range s.rows {
		fmt.Fprintf(&out, "| %s | %s | %s |\n", row, s.both[0].col[row], s.both[1].col[row])
	}
	s.b.Logf("\n%s", out.String())
}

// cpu returns the CPU time that a process has used.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // starts at the third field
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// mebibytes returns a figure of /proc/PID/status.
func mebibytes(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return math.NaN()
	}
	m := regexp.MustCompile(`(?m)^` + field + `:\s*(\d+) kB$`).FindSubmatch(text)
	if m == nil {
		return math.NaN()
	}
	kb, _ := strconv.ParseFloat(string(m[1]), 64)
	return kb / 1024
}
