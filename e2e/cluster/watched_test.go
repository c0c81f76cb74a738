package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
)

// seenTrials is the number of pods evicted in each state of the API server without JETTISON_TRIALS.
const seenTrials = 4

// apiState is a state of the API server during an eviction.
type apiState struct {
	name         string
	worse, heals func(c *Cluster)
}

var apiStates = []apiState{
	{"answers", func(*Cluster) {}, func(*Cluster) {}},
	{"hangs", func(c *Cluster) { c.Pause(APIServer) }, func(c *Cluster) { c.Resume(APIServer) }},
	{"is dead", func(c *Cluster) { c.Kill(APIServer) }, func(c *Cluster) { c.Again(APIServer) }},
}

// seen has the durations of evictions in one state of the API server, in order.
type seen struct {
	reacted []time.Duration // from the first reading below the threshold to the kill
	emptied []time.Duration // from the kill until no process was left
	cleaned []time.Duration // from the kill until its sandbox had ended
	failed  []time.Duration // from the kill until the API server had it as Failed
}

// BenchmarkSeen measures the time from a kill until the pod is Failed at the API server, on a node
// with a kubelet, and whether the agent reacts later while the API server hangs or is down. Pods
// leak in sequence, alternating between the three states. All times are the guest's.
func BenchmarkSeen(b *testing.B) {
	trials := seenTrials
	if text := os.Getenv("JETTISON_TRIALS"); text != "" {
		var err error
		if trials, err = strconv.Atoi(text); err != nil || trials <= 0 {
			b.Fatalf("JETTISON_TRIALS %q: want a number of pods", text)
		}
	}
	c := Start(b, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	c.installBridge(n)
	for range b.N {
		all := make([]seen, len(apiStates))
		for i := range trials {
			for turn := range apiStates { // each state is first equally often
				j := (i + turn) % len(apiStates)
				c.watchOne(n, apiStates[j], fmt.Sprintf("leaker-%d-%d", i, j), &all[j])
			}
		}
		for j, state := range apiStates {
			s := all[j]
			b.Logf("the API server %-8s %d evictions: reaction %s; from the kill: empty %s, sandbox ended %s, Failed in the API %s",
				state.name, len(s.reacted), spread(s.reacted), spread(s.emptied), spread(s.cleaned), spread(s.failed))
			b.ReportMetric(float64(median(s.reacted).Microseconds())/1000, strings.ReplaceAll(state.name, " ", "-")+"-react-p50-ms")
			b.ReportMetric(float64(median(s.failed).Microseconds())/1000, strings.ReplaceAll(state.name, " ", "-")+"-failed-p50-ms")
		}
	}
}

// watchOne makes a pod leak in a state of the API server, and reads the times from its record and the
// bridge's log.
func (c *Cluster) watchOne(n *Node, state apiState, name string, s *seen) {
	c.t.Helper()
	ctx := c.t.Context()
	c.leaker(name)
	pod := c.running("default", "app="+name)
	state.worse(c)
	n.leak(c.t, pod.UID, "60Mi")
	var r *api.Record
	c.Eventually(workloadDeadline, name+" is evicted", func(ctx context.Context) error {
		all, err := n.API().Records(ctx)
		for _, one := range all {
			if one.Pod.UID == string(pod.UID) && one.Outcome != api.OutcomeRunning && one.Cleaned.Known() {
				r = one
			}
		}
		if err == nil && r == nil {
			err = errors.New("no record of the eviction is complete")
		}
		return err
	})
	state.heals(c)
	c.awaitFailed(pod)
	c.Eventually(workloadDeadline, "the bridge tells when "+name+" was failed", func(ctx context.Context) error {
		took, err := c.failedDelay(ctx, pod)
		if err == nil {
			s.failed = append(s.failed, took)
		}
		return err
	})
	if r.Crossed == nil || !r.Killed.Known() || !r.Emptied.Known() {
		c.t.Fatalf("times missing in the record of %s: %+v", name, r)
	}
	s.reacted = append(s.reacted, r.Killed.Time.Sub(r.Crossed.Time))
	s.emptied = append(s.emptied, r.Emptied.Time.Sub(r.Killed.Time))
	s.cleaned = append(s.cleaned, r.Cleaned.Time.Sub(r.Killed.Time))
	c.t.Logf("%s: the API server %s; %s", name, state.name, s.last())
	if err := c.Client.CoreV1().Pods("default").Delete(ctx, name, *metav1.NewDeleteOptions(0)); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(workloadDeadline, "the node is quiet", func(ctx context.Context) error {
		state, err := n.API().State(ctx)
		if err == nil && len(state.InProgress) > 0 {
			err = fmt.Errorf("%d evictions are in progress", len(state.InProgress))
		}
		return err
	})
}

// last returns the durations of the last eviction, as text.
func (s *seen) last() string {
	at := len(s.reacted) - 1
	return fmt.Sprintf("reaction %v; from the kill: empty %v, sandbox ended %v, Failed in the API %v",
		s.reacted[at], s.emptied[at], s.cleaned[at], s.failed[at])
}

// leaker makes a pod that leaks after a signal.
func (c *Cluster) leaker(name string) {
	c.t.Helper()
	grace := int64(2)
	_, err := c.Client.CoreV1().Pods("default").Create(c.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{container("leak /leak")}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// toldAs matches the bridge's log line about a pod set to Failed.
var toldAs = regexp.MustCompile(`msg="pod set to Failed".* after=(\S+)`)

// failedDelay returns how long after its kill a pod was set to Failed, by the bridge's log.
func (c *Cluster) failedDelay(ctx context.Context, pod v1.Pod) (time.Duration, error) {
	pods, err := c.Pods(ctx, bridgeNamespace, "app.kubernetes.io/name=jettison-bridge")
	if err != nil || len(pods) == 0 {
		return 0, fmt.Errorf("%d bridge pods (%w)", len(pods), err)
	}
	text, err := c.Logs(ctx, pods[0])
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if m := toldAs.FindStringSubmatch(line); m != nil && strings.Contains(line, string(pod.UID)) {
			return time.ParseDuration(m[1])
		}
	}
	return 0, errors.New("the bridge's log lacks the pod")
}

func median(all []time.Duration) time.Duration { return share(all, 0.5) }

// share returns the smallest value that this share does not exceed.
func share(all []time.Duration, of float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(of*float64(len(sorted)-1))]
}

// spread returns a distribution, as text.
func spread(all []time.Duration) string {
	ms := func(d time.Duration) string { return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) }
	return fmt.Sprintf("p50 %s p90 %s most %s ms", ms(share(all, 0.5)), ms(share(all, 0.9)), ms(share(all, 1)))
}
