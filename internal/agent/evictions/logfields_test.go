package evictions

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/eviction"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// A ranking shows both bounds of a request that is known as a range.
func TestRankingShowsBothBoundsOfARequest(t *testing.T) {
	for want, request := range map[string]stats.Opt[stats.Range]{
		`{"pod":"a/b","qos":"","usage":5,"request":7}`:                   stats.Some(stats.ExactRange(7)),
		`{"pod":"a/b","qos":"","usage":5,"request":0}`:                   stats.Some(stats.Range{}),
		`{"pod":"a/b","qos":"","usage":5,"request":7,"requestMax":9}`:    stats.Some(stats.Range{Min: 7, Max: 9}),
		`{"pod":"a/b","qos":"","usage":5,"request":-1}`:                  {},
		`{"pod":"a/b","qos":"","usage":5,"request":0,"requestMax":1024}`: stats.Some(stats.Range{Max: 1024}),
	} {
		r := row{Pod: "a/b", Usage: 5}
		r.setRequest(request)
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("row = %s (%v), want %s", got, err, want)
		}
	}
	r := row{Pod: "a/b", QOS: "Burstable", Usage: 8, Request: 7, RequestMax: 9, DecidedBy: "UID"}
	if got := r.String(); got != "a/b(Burstable usage=8 request=7..9 UID)" {
		t.Errorf("row as text = %s, want both bounds", got)
	}
}

// Containers' memory usage is read after the kill, and reported in the kubelet's message. A
// decision that has its texts stays unchanged.
func TestContainerUsageIsReported(t *testing.T) {
	request := v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}
	object := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: nodetest.UID, Name: "pod", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Requests: request}}}},
	}
	for _, terse := range []bool{true, false} {
		asked := 0
		f := newFixture(t, softAndHard, nil)
		f.killable()
		f.o.Blame = func(p *stats.PodStats) {
			asked++
			if killed, err := os.ReadFile(f.Dir + "/cgroup/" + nodetest.Pod + "/cgroup.kill"); err != nil || string(killed) != "1" {
				t.Errorf("usage is read before the kill: cgroup.kill %q, %v", killed, err)
			}
			p.Containers = []stats.ContainerStats{{Name: "app", Memory: stats.ContainerMemoryStats{WorkingSetBytes: stats.Some[uint64](300 << 20)}}}
		}
		f.pods = f.Runs()
		now := time.Now()
		f.observe(now, 90)
		s := stats.Summary{Time: now}
		if err := f.Reader.Memory(now, f.pods, &s); err != nil {
			t.Fatal(err)
		}
		s.Node = node(now, 90)
		objects := map[string]*eviction.Pod{nodetest.UID: eviction.NewPod(object)}
		d := f.m.Step(now, eviction.Input{Summary: &s, MemoryOnly: true, Terse: terse, Pods: objects})
		ctx, cancel := context.WithCancel(t.Context())
		if !f.OnDecided(ctx, &d) {
			t.Fatalf("no eviction began by the decision %+v", d)
		}
		e := f.m.Life(nodetest.UID).Eviction()
		const usage = "Container app was using 300Mi, request is 100Mi, has larger consumption of memory. "
		if strings.Contains(e.Message, usage) != terse || asked > 0 != terse {
			t.Errorf("terse %v: usage read %d times, message %q", terse, asked, e.Message)
		}
		if usage := e.Annotations["offending_containers_usage"]; terse && usage != "300Mi" {
			t.Errorf("annotations of the terse decision = %v", e.Annotations)
		}
		f.end(cancel)
	}
}
