package nodes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"jettison/cluster/lifecycle"
)

// metrics holds the metrics of the program. Names and buckets without the prefix jettison_cluster_
// are upstream's (pkg/controller/nodelifecycle/metrics.go,
// pkg/controller/tainteviction/metrics/metrics.go, 1.37.2).
type metrics struct {
	registry                           *prometheus.Registry
	zoneHealth, zoneSize, unhealthy    *prometheus.GaugeVec
	waiting, rate                      *prometheus.GaugeVec // by zone
	evictions                          *prometheus.CounterVec
	nodeWrites, steps                  prometheus.Histogram
	deletions                          prometheus.Counter
	deletionLatency                    prometheus.Histogram
	failureToTaint, taintToDelete      prometheus.Histogram
	writes, plannedWrites              *prometheus.CounterVec
	queueDepth                         *prometheus.GaugeVec
	doubt, leader, held, readAge, pods prometheus.Gauge
}

func newMetrics(version string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	gauges := func(name, help, label string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
		m.registry.MustRegister(g)
		return g
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.zoneHealth = gauges("node_collector_zone_health",
		"Gauge measuring percentage of healthy nodes per zone.", "zone")
	m.zoneSize = gauges("node_collector_zone_size",
		"Gauge measuring number of registered Nodes per zones.", "zone")
	m.unhealthy = gauges("node_collector_unhealthy_nodes_in_zone",
		"Gauge measuring number of not Ready Nodes per zones.", "zone")
	m.evictions = counters("node_collector_evictions_total",
		"Number of Node evictions that happened since current instance of NodeController started.",
		"zone")
	m.nodeWrites = histogram("node_collector_update_node_health_duration_seconds",
		"Duration in seconds of writing to a single node.",
		prometheus.ExponentialBuckets(0.001, 4, 8))
	m.steps = histogram("node_collector_update_all_nodes_health_duration_seconds",
		"Duration in seconds of deciding about all nodes.",
		prometheus.ExponentialBuckets(0.01, 4, 8))
	m.deletionLatency = histogram("taint_eviction_controller_pod_deletion_duration_seconds",
		"Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion.",
		[]float64{.005, .025, .1, .5, 1, 2.5, 10, 30, 60, 120, 180, 240})
	deletions := counters("taint_eviction_controller_pod_deletions_total",
		"Total number of Pods deleted by the taint eviction controller.")
	m.deletions = deletions.WithLabelValues()
	seconds := prometheus.ExponentialBuckets(0.1, 2, 15)
	m.failureToTaint = histogram("jettison_cluster_failure_to_taint_seconds",
		"Time from a node's failure to its NoExecute taint.", seconds)
	m.taintToDelete = histogram("jettison_cluster_taint_to_delete_seconds",
		"Time from a taint to the deletion of a pod because of it.", seconds)
	m.waiting = gauges("jettison_cluster_nodes_waiting", "Nodes that wait for a NoExecute taint.",
		"zone")
	m.rate = gauges("jettison_cluster_eviction_rate", "NoExecute taints per second.",
		"zone")
	m.queueDepth = gauges("jettison_cluster_queue_depth",
		"Pending writes: nodes, evictions, marks.", "queue")
	m.writes = counters("jettison_cluster_writes_total",
		"Writes to the API server: status, labels, taints, evict, mark.", "what", "result")
	m.plannedWrites = counters("jettison_cluster_would_write_total",
		"Writes that mode observe suppressed.", "what")
	m.doubt = gauge("jettison_cluster_doubt", "1 while node silence is in doubt.")
	m.leader = gauge("jettison_cluster_leader", "1 while this replica is the leader.")
	m.held = gauge("jettison_cluster_held",
		"1 while another taint controller is active and this replica waits.")
	m.readAge = gauge("jettison_cluster_read_age_seconds", "Age of the last read of nodes and Leases.")
	m.pods = gauge("jettison_cluster_pods", "Bound pods that have not finished.")
	build := gauges("jettison_cluster_build_info", "1, labeled with the running version.", "version")
	build.WithLabelValues(version).Set(1)
	return m
}

func (m *metrics) countWrite(kind string, err error) {
	result := "ok"
	switch {
	case notSent(err):
		return
	case err != nil:
		result = "failed"
	}
	m.writes.WithLabelValues(kind, result).Inc()
}

func (m *metrics) countTaint(zone string, after time.Duration) {
	m.evictions.WithLabelValues(zone).Inc()
	m.failureToTaint.Observe(after.Seconds())
}

func (m *metrics) countEviction(late, after time.Duration) {
	m.deletions.Inc()
	m.deletionLatency.Observe(max(0, late).Seconds())
	m.taintToDelete.Observe(max(0, after).Seconds())
}

// updateMetrics sets the gauges after a step.
func (l *loop) updateMetrics(now time.Time, seen lifecycle.Seen) {
	m := l.ctrl.metrics
	for _, g := range []interface{ Reset() }{m.zoneHealth, m.zoneSize, m.unhealthy, m.waiting,
		m.rate} {
		g.Reset()
	}
	for zone, z := range l.nodes.Zones() {
		size, health := z.Ready+z.NotReady, 100.0
		if size > 0 {
			health = 100 * float64(z.Ready) / float64(size)
		}
		m.zoneHealth.WithLabelValues(zone).Set(health)
		m.zoneSize.WithLabelValues(zone).Set(float64(size))
		m.unhealthy.WithLabelValues(zone).Set(float64(z.NotReady))
		m.waiting.WithLabelValues(zone).Set(float64(z.Waiting))
		m.rate.WithLabelValues(zone).Set(z.Rate)
	}
	m.doubt.Set(boolValue(l.lastActions.Doubt != ""))
	m.readAge.Set(now.Sub(seen.Read).Seconds())
}

// countQueues sets the gauges of pending writes.
func (l *loop) countQueues() {
	depth := l.ctrl.metrics.queueDepth
	depth.WithLabelValues("nodes").Set(float64(len(l.queue.nodeJobs)))
	evictions, marks := l.queue.depth()
	depth.WithLabelValues("evictions").Set(float64(evictions))
	depth.WithLabelValues("marks").Set(float64(marks))
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
