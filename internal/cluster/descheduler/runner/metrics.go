package runner

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"jettison/cluster/deschedule"
)

// metrics are what is counted, by the names of 0.36.0 (metrics/metrics.go).
type metrics struct {
	registry   *prometheus.Registry
	evicted    *prometheus.CounterVec
	loop       prometheus.Histogram
	strategies *prometheus.HistogramVec
	ready      atomic.Bool // the cluster was read once
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "descheduler_pods_evicted_total",
			Help: "Evictions that were asked for, by result: success, background, or error: the pod could not be evicted.",
		}, []string{"result", "strategy", "profile", "namespace", "node"}),
		loop: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "descheduler_loop_duration_seconds", Help: "Time that a whole cycle takes.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500},
		}),
		strategies: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "descheduler_strategy_duration_seconds",
			Help:    "Time that a strategy takes in a cycle, its evictions included.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100},
		}, []string{"strategy", "profile"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "descheduler_build_info", Help: "1, of the version that runs.",
		ConstLabels: prometheus.Labels{"GoVersion": runtime.Version(), "DeschedulerVersion": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.evicted, m.loop, m.strategies, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// part is a strategy of a profile.
type part struct{ strategy, profile string }

// durations are what strategies take in one cycle. A plan goes over each several times, and evicts
// later: all of that is one duration.
type durations map[part]time.Duration

func (d durations) watch(now func() time.Time) deschedule.StrategyTimer {
	return func(profile, strategy string) func() {
		began := now()
		return func() { d[part{strategy, profile}] += now().Sub(began) }
	}
}

func (m *metrics) took(d durations) {
	for p, took := range d {
		m.strategies.WithLabelValues(p.strategy, p.profile).Observe(took.Seconds())
	}
}

// handler tells metrics, whether it lives, and whether the cluster was read.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !m.ready.Load() {
			http.Error(w, "the cluster was not read yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
