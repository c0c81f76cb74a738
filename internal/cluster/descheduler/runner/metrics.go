package runner

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"jettison/cluster/deschedule"
	"jettison/internal/cluster/statusserver"
)

// metrics are the metrics of the descheduler, with the names of 0.36.0 (metrics/metrics.go).
type metrics struct {
	registry   *prometheus.Registry
	evicted    *prometheus.CounterVec
	loop       prometheus.Histogram
	strategies *prometheus.HistogramVec
	ready      atomic.Bool // all objects were listed once
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "descheduler_pods_evicted_total",
			Help: "Requested evictions by result: success, background (in progress) or error.",
		}, []string{"result", "strategy", "profile", "namespace", "node"}),
		loop: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "descheduler_loop_duration_seconds", Help: "Duration of a descheduling cycle in seconds.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500},
		}),
		strategies: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "descheduler_strategy_duration_seconds",
			Help:    "Duration of a strategy in a cycle in seconds, including its evictions.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100},
		}, []string{"strategy", "profile"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "descheduler_build_info", Help: "Always 1, with the versions of the program and of Go as labels.",
		ConstLabels: prometheus.Labels{"GoVersion": runtime.Version(), "DeschedulerVersion": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.evicted, m.loop, m.strategies, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// strategyKey identifies a strategy of a profile.
type strategyKey struct{ strategy, profile string }

// durations are the durations of strategies in one cycle. Each sums up all passes of the plan and
// the evictions.
type durations map[strategyKey]time.Duration

func (d durations) timer(now func() time.Time) deschedule.StrategyTimer {
	return func(profile, strategy string) func() {
		began := now()
		return func() { d[strategyKey{strategy, profile}] += now().Sub(began) }
	}
}

func (m *metrics) observeStrategies(d durations) {
	for p, took := range d {
		m.strategies.WithLabelValues(p.strategy, p.profile).Observe(took.Seconds())
	}
}

// handler serves metrics, liveness and readiness.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", statusserver.Metrics(m.registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !m.ready.Load() {
			http.Error(w, "objects of the cluster not listed yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
