package socket

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/eviction"
	"jettison/internal/agent/admission"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
)

// The state that the loop publishes determines the answer, with the kubelet's texts, from YAML to
// the answer (cases D21, K01, K02, K03, K04, K06).
func TestNodeStateDecides(t *testing.T) {
	a := admission.New(eviction.Policy{})
	path, _ := start(t, Options{Admission: a}, patient)
	c := client(t, path)
	text := func(spec string) string {
		if !strings.Contains(spec, "containers: ") {
			spec = strings.TrimPrefix(spec+", containers: [{name: c}]", ", ")
		}
		return "metadata: {name: web, namespace: default, uid: u}\nspec: {" + spec + "}\n"
	}
	if got := ask(t, c, "POST", "/v1/admit", text("")); got.status != 503 || !strings.Contains(got.text, "has not read the node") {
		t.Errorf("answer before the first look = %d %s, want 503", got.status, got.text)
	}
	capacity := v1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("110"),
	}
	part := admission.NewPart(a, admission.Options{
		Node: admission.Node{Name: "n1", Arch: "amd64", Configured: map[string]string{"disk": "ssd"}},
		Self: func() string { return "" }, Name: func(stats.PodReference) string { return "" },
		Capacity: func() v1.ResourceList { return capacity }, Allocatable: func(l v1.ResourceList) v1.ResourceList { return l },
		Evictions: func(time.Time) (map[string]bool, map[string]bool) { return nil, nil },
		HeldOff:   func(time.Time, *v1.Pod) (string, bool) { return "", false },
		Log:       logthrottle.New(slog.New(slog.NewTextHandler(io.Discard, nil))),
	})
	const requests = "containers: [{name: c, resources: {requests: {%s}}}]"
	for _, r := range []struct {
		conditions string
		spec       string
		want       string // reason and message of a rejection
	}{
		{"", "", ""},
		{"MemoryPressure", "", "Evicted The node had condition: [MemoryPressure]. "},
		{"MemoryPressure", fmt.Sprintf(requests, "memory: 1Mi"), ""},
		{"MemoryPressure", "priority: 2000000000", ""},
		{"MemoryPressure", "tolerations: [{key: node.kubernetes.io/memory-pressure, effect: NoSchedule, operator: Exists}]", ""},
		{"DiskPressure", fmt.Sprintf(requests, "memory: 1Mi"), "Evicted The node had condition: [DiskPressure]. "},
		{"DiskPressure MemoryPressure", "priorityClassName: system-node-critical", ""},
		{"", fmt.Sprintf(requests, "cpu: 5, memory: 2Gi"), "OutOfcpu Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"},
		{"", fmt.Sprintf(requests, "example.com/lustre: 1"), ""},
		{"", "nodeName: n2", "NodeName Predicate NodeName failed: node(s) didn't match the requested node name"},
		{"", "nodeSelector: {disk: hdd}", "NodeAffinity Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"", "nodeSelector: {disk: ssd}", ""},
		{"", "os: {name: windows}", "PodOSNotSupported Failed to admit pod as the OS field doesn't match node OS"},
		{"", "shiny: true", ""},
	} {
		var conditions []eviction.Condition
		for _, c := range strings.Fields(r.conditions) {
			conditions = append(conditions, eviction.Condition(c))
		}
		part.Publish(time.Now(), conditions, false)
		got := ask(t, c, "POST", "/v1/admit", text(r.spec))
		want := `{"uid":"u","admit":true,"reason":"","message":""`
		if reason, message, ok := strings.Cut(r.want, " "); ok {
			want = fmt.Sprintf(`{"uid":"u","admit":false,"reason":%q,"message":%q`, reason, message)
		}
		if got.status != 200 || !strings.HasPrefix(got.text, want) {
			t.Errorf("conditions %q, spec %q: answer\n got %d %s\nwant %s", r.conditions, r.spec, got.status, got.text, want)
		}
	}
}
