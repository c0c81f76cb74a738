package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/build"
)

// podsEach is the number of pods of a node, and podsOfOne that of the separately measured one.
// atRest is two heartbeats, and the longest duration of a watch.
const (
	podsEach, podsOfOne = 2, 110
	atRest              = 11 * time.Minute
)

// BenchmarkBridges measures what bridges cost a cluster. Each belongs to its own node, bound to it
// by a token and the policies, with an agent that the test simulates. It measures the requests at
// rest, and the delays when a fifth of the nodes evicts at the same time. A thousand bridges take a
// quarter of an hour.
func BenchmarkBridges(b *testing.B) {
	for _, bridges := range []int{100, 1000} {
		b.Run(fmt.Sprint(bridges), func(b *testing.B) {
			for range b.N {
				measure(b, bridges)
			}
		})
	}
}

func measure(b *testing.B, bridges int) {
	c := Start(b, Options{})
	installBridge(b, c)
	nodes := manyNodes(b, c, bridges)
	t := table{{"API server's RSS before", memory(c.pid(APIServer))}}
	one := measured(b, c)
	began := time.Now()
	runMany(b, c, nodes)
	c.Eventually(10*time.Minute, "every agent knows its pods", func(ctx context.Context) error {
		for _, n := range nodes {
			if err := n.agent.hasPods(podsEach)(ctx); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
		return nil
	})
	t.add("all agents know their pods after", time.Since(began).Round(time.Second))
	c.Eventually(10*time.Minute, "every node has its conditions", func(ctx context.Context) error { return conditioned(ctx, c, nodes) })
	time.Sleep(30 * time.Second) // until their Leases exist, too
	before := c.requests(b)
	t.add("watches of pods", c.watches(b))
	time.Sleep(atRest)
	after := c.requests(b)
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n >= float64(bridges)/10 { // without the API server's own requests
			each := n / float64(bridges) / atRest.Minutes()
			b.ReportMetric(each, strings.ReplaceAll(what, " ", "-")+"/min")
			t.add("at rest, of each bridge: "+what, fmt.Sprintf("%.2f a minute", each))
		}
	}
	t.add("API server's RSS with them", memory(c.pid(APIServer)))
	t.add(fmt.Sprintf("RSS of a bridge of %d pods", podsOfOne), memory(one))
	took := evictAtOnce(b, c, nodes[:bridges/5])
	of := func(share float64) time.Duration {
		return took[int(share*float64(len(took)-1))].Round(time.Millisecond)
	}
	b.ReportMetric(float64(of(0.5).Milliseconds()), "failed-p50-ms")
	b.ReportMetric(float64(of(0.99).Milliseconds()), "failed-p99-ms")
	t.add(fmt.Sprintf("%d nodes evict at once: Failed after, p50", len(took)), of(0.5))
	t.add("p99", of(0.99))
	t.add("the last", of(1))
	for _, row := range t {
		b.Logf("%-60s %s", row[0], row[1])
	}
}

// table has the printed results.
type table [][2]string

func (t *table) add(what string, is any) { *t = append(*t, [2]string{what, fmt.Sprint(is)}) }

// manyNode is a node without a machine.
type manyNode struct {
	name, token string
	agent       *fakeAgent
	pods        []*v1.Pod
}

// manyNodes makes nodes with running pods.
func manyNodes(b *testing.B, c *Cluster, how int) []*manyNode {
	b.Helper()
	nodes := make([]*manyNode, how)
	for i := range nodes {
		nodes[i] = &manyNode{name: fmt.Sprintf("m%04d", i), agent: startFakeAgent(b)}
	}
	next, failed := make(chan *manyNode), make(chan error, len(nodes))
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for n := range next {
				if err := n.make(b.Context(), c); err != nil {
					failed <- err
				}
			}
		})
	}
	for _, n := range nodes {
		next <- n
	}
	close(next)
	if workers.Wait(); len(failed) > 0 {
		b.Fatal(<-failed)
	}
	for _, n := range nodes {
		n.token = c.NodeToken(bridgeNamespace, bridgeAccount, n.name)
	}
	return nodes
}

func (n *manyNode) make(ctx context.Context, c *Cluster) error {
	if _, err := c.Client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range podsEach {
		pod, err := makeRunningPod(ctx, c, fmt.Sprintf("%s-%d", n.name, i), n.name, nil)
		if err != nil {
			return err
		}
		n.pods = append(n.pods, pod)
	}
	return nil
}

// runMany runs the bridges of nodes in a process that ends with the benchmark.
func runMany(b *testing.B, c *Cluster, nodes []*manyNode) {
	b.Helper()
	root, err := build.ModuleRoot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if _, err := build.Run(b.Context(), root, nil, "go", "build", "-o", dir+"/", "./e2e/cluster/bridges"); err != nil {
		b.Fatal(err)
	}
	type one struct {
		Node, Token, Socket, Host string
		CA                        []byte
	}
	var all []one
	for _, n := range nodes {
		all = append(all, one{n.name, n.token, n.agent.socket, c.Admin.Host, c.Admin.CAData})
	}
	text, err := json.Marshal(all)
	if err != nil {
		b.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(dir, "bridges"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && b.Failed() {
			b.Logf("the bridges' log ends with:\n%s", build.Tail(string(text), 4000))
		}
	})
	if _, err := in.Write(text); err != nil { // stdin stays open
		b.Fatal(err)
	}
}

func conditioned(ctx context.Context, c *Cluster, nodes []*manyNode) error {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	n := 0
	for i := range list.Items {
		if len(list.Items[i].Status.Conditions) == 3 { // only the bridge's
			n++
		}
	}
	if n < len(nodes) {
		return fmt.Errorf("%d nodes have the conditions", n)
	}
	return nil
}

// evictAtOnce makes each of these nodes evict a pod at the same time, and returns how long each
// took to be Failed at the API server, sorted.
func evictAtOnce(b *testing.B, c *Cluster, nodes []*manyNode) (took []time.Duration) {
	b.Helper()
	list, err := c.Client.CoreV1().Pods("default").List(b.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	w, err := c.Client.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	told := map[string]time.Time{}
	for _, n := range nodes {
		told[n.pods[0].Name] = time.Now()
		n.agent.reportEvicted(n.pods[0])
	}
	late := time.After(5 * time.Minute)
	for len(told) > 0 {
		select {
		case e, ok := <-w.ResultChan():
			p, is := e.Object.(*v1.Pod)
			if !ok || !is {
				b.Fatalf("watch of pods ended: %v", e)
			}
			if at, ours := told[p.Name]; ours && p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted" {
				took = append(took, time.Since(at))
				delete(told, p.Name)
			}
		case <-late:
			b.Fatalf("pods not set to Failed = %d, want 0", len(told))
		}
	}
	slices.Sort(took)
	return took
}

// measured starts the process of a shipped bridge, for a node with many pods.
func measured(b *testing.B, c *Cluster) (pid int) {
	b.Helper()
	for i := range podsOfOne {
		runningPod(b, c, fmt.Sprint("one-", i), "n1", nil)
	}
	a := startFakeAgent(b)
	pid = runBridge(b, c, a, "n1").pid
	c.Eventually(10*time.Minute, "its agent knows its pods", a.hasPods(podsOfOne+1)) // one existed before
	return pid
}

func (c *Cluster) pid(part string) int { return c.processes[c.find(part)].pid }

// memory returns the resident set of a process, as text.
func memory(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(regexp.MustCompile(`(?m)^VmRSS:(.*)$`).FindSubmatch(text)[1]))
}

// sample matches a line of /metrics.
var sample = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)

// samples calls each with every value of a metric and its labels as written.
func (c *Cluster) samples(b *testing.B, metric string, each func(label func(string) string, value float64)) {
	b.Helper()
	text, err := c.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for lines := bufio.NewReader(bytes.NewReader(text)); ; {
		line, err := lines.ReadString('\n')
		if m := sample.FindStringSubmatch(strings.TrimSpace(line)); m != nil && m[1] == metric {
			value, _ := strconv.ParseFloat(m[3], 64)
			each(func(name string) string {
				_, from, _ := strings.Cut(m[2], name+`="`)
				is, _, _ := strings.Cut(from, `"`)
				return is
			}, value)
		}
		if err == io.EOF {
			return
		}
	}
}

// requests counts the requests that the API server has answered, by kind.
func (c *Cluster) requests(b *testing.B) map[string]float64 {
	out := map[string]float64{}
	c.samples(b, "apiserver_request_total", func(label func(string) string, n float64) {
		what := label("verb") + " " + label("resource")
		if part := label("subresource"); part != "" {
			what += "/" + part
		}
		out[what] += n
	})
	return out
}

// watches returns the number of open watches of pods.
func (c *Cluster) watches(b *testing.B) (n float64) {
	c.samples(b, "apiserver_longrunning_requests", func(label func(string) string, open float64) {
		if label("resource") == "pods" && label("verb") == "WATCH" {
			n += open
		}
	})
	return n
}
