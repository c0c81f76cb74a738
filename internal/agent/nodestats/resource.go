package nodestats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/node/metrics"
)

// resource is one family of resource metrics, with the kubelet's names and texts.
type resource struct{ name, kind, text string }

// sample is a value of a family with its time; ok false: unknown.
type sample struct {
	v    float64
	time time.Time
	ok   bool
}

var containerFamilies = []struct {
	resource
	of func(*v1alpha1.ContainerStats) sample
}{
	{resource{"container_cpu_usage_seconds_total", "counter",
		"[STABLE] Cumulative cpu time consumed by the container in core-seconds"},
		func(c *v1alpha1.ContainerStats) sample { return cpu(c.CPU) }},
	{resource{"container_memory_working_set_bytes", "gauge",
		"[STABLE] Current working set of the container in bytes"},
		func(c *v1alpha1.ContainerStats) sample { return memory(c.Memory) }},
	{resource{"container_start_time_seconds", "gauge",
		"[STABLE] Start time of the container since unix epoch in seconds"},
		func(c *v1alpha1.ContainerStats) sample {
			if c.StartTime.Unix() <= 0 || !cpu(c.CPU).ok && !memory(c.Memory).ok {
				// without CPU or memory the start time alone would drop all figures of the pod: metrics-server
				// v0.8 decode.go checkContainerMetrics
				return sample{}
			}
			return sample{v: float64(c.StartTime.UnixNano()) / 1e9, ok: true}
		}},
	{resource{"container_swap_limit_bytes", "gauge",
		"[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems"},
		func(c *v1alpha1.ContainerStats) sample {
			if c.Swap == nil || c.Swap.SwapAvailableBytes == nil {
				return sample{}
			}
			limit := sample{v: float64(*c.Swap.SwapAvailableBytes), time: c.Swap.Time.Time, ok: true}
			if c.Swap.SwapUsageBytes != nil {
				limit.v += float64(*c.Swap.SwapUsageBytes)
			}
			return limit
		}},
	{resource{"container_swap_usage_bytes", "gauge",
		"[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems"},
		func(c *v1alpha1.ContainerStats) sample { return swap(c.Swap) }},
}

var nodeFamilies = []struct {
	resource
	of func(*v1alpha1.NodeStats) sample
}{
	{resource{"node_cpu_usage_seconds_total", "counter",
		"[STABLE] Cumulative cpu time consumed by the node in core-seconds"},
		func(n *v1alpha1.NodeStats) sample { return cpu(n.CPU) }},
	{resource{"node_memory_working_set_bytes", "gauge",
		"[STABLE] Current working set of the node in bytes"},
		func(n *v1alpha1.NodeStats) sample { return memory(n.Memory) }},
	{resource{"node_swap_usage_bytes", "gauge",
		"[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems"},
		func(n *v1alpha1.NodeStats) sample { return swap(n.Swap) }},
}

var podFamilies = []struct {
	resource
	of func(*v1alpha1.PodStats) sample
}{
	{resource{"pod_cpu_usage_seconds_total", "counter",
		"[STABLE] Cumulative cpu time consumed by the pod in core-seconds"},
		func(p *v1alpha1.PodStats) sample { return cpu(p.CPU) }},
	{resource{"pod_memory_working_set_bytes", "gauge",
		"[STABLE] Current working set of the pod in bytes"},
		func(p *v1alpha1.PodStats) sample { return memory(p.Memory) }},
	{resource{"pod_swap_usage_bytes", "gauge",
		"[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems"},
		func(p *v1alpha1.PodStats) sample { return swap(p.Swap) }},
}

func perUnit(v *uint64, per float64, t metav1.Time) sample {
	if v == nil {
		return sample{}
	}
	return sample{float64(*v) / per, t.Time, true}
}

func cpu(c *v1alpha1.CPUStats) sample {
	if c == nil {
		return sample{}
	}
	return perUnit(c.UsageCoreNanoSeconds, 1e9, c.Time)
}

func memory(m *v1alpha1.MemoryStats) sample {
	if m == nil {
		return sample{}
	}
	return perUnit(m.WorkingSetBytes, 1, m.Time)
}

func swap(s *v1alpha1.SwapStats) sample {
	if s == nil {
		return sample{}
	}
	return perUnit(s.SwapUsageBytes, 1, s.Time)
}

// Resource returns the resource metrics of a Summary in the Prometheus text format, with families
// ordered as in a kubelet. nil: the scrape failed, and only resource_scrape_error is written.
func Resource(s *v1alpha1.Summary) []byte {
	var w metrics.Writer
	failed := 1.0
	if s != nil {
		failed = 0
		containers(&w, s)
		for _, f := range nodeFamilies {
			if a := f.of(&s.Node); a.ok {
				w.Family(f.name, f.kind, f.text)
				w.Sample(f.name, a.v, a.time)
			}
		}
		for _, f := range podFamilies {
			begun := false
			for i := range s.Pods {
				p := &s.Pods[i]
				f.write(&w, &begun, f.of(p), "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
			}
		}
	}
	w.Family("resource_scrape_error", "gauge",
		"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")
	w.Sample("resource_scrape_error", failed, time.Time{})
	return w.Text()
}

func containers(w *metrics.Writer, s *v1alpha1.Summary) {
	for _, f := range containerFamilies {
		begun := false
		for i := range s.Pods {
			p := &s.Pods[i]
			for j := range p.Containers {
				c := &p.Containers[j]
				f.write(w, &begun, f.of(c), "container", c.Name, "namespace", p.PodRef.Namespace, "pod",
					p.PodRef.Name)
			}
		}
	}
}

// write writes a sample, preceded by its family's header before the first one.
func (r *resource) write(w *metrics.Writer, begun *bool, a sample, labels ...string) {
	if !a.ok {
		return
	}
	if !*begun {
		w.Family(r.name, r.kind, r.text)
		*begun = true
	}
	w.Sample(r.name, a.v, a.time, labels...)
}
