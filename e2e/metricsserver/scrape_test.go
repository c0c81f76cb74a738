package metricsserver

import (
	"bytes"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A scrape of the agent (internal/node/metrics, TestAScrape), and the page that documents its
// metrics.
const (
	scraped = "../../internal/node/metrics/testdata/scrape.metrics"
	page    = "../../docs/reference/metrics.md"
)

// documented is a row of the page.
type documented struct {
	kind   string
	labels []string
}

// table reads the agent's part of the page: the families by name, and the text outside of the table.
func table(t *testing.T) (families map[string]documented, text string) {
	t.Helper()
	all, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	families = map[string]documented{}
	agent, _, ok := strings.Cut(string(all), "\n## Bridge\n")
	if !ok {
		t.Fatalf("%s has no section of the bridge after the agent's", page)
	}
	for line := range strings.Lines(agent) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`jettison_") {
			text += line
			continue
		}
		d := documented{kind: strings.TrimSpace(cells[2])}
		for label := range strings.SplitSeq(cells[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				d.labels = append(d.labels, label)
			}
		}
		families[strings.Trim(cells[1], " `")] = d
	}
	return families, text
}

// ofTheProcess returns the families that every program has, as the page names them: a_{b,c}_d are
// two.
func ofTheProcess(text string) (names []string) {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 0 || !strings.HasPrefix(part, "process_") && !strings.HasPrefix(part, "go_") {
			continue
		}
		before, rest, several := strings.Cut(part, "{")
		middle, after, _ := strings.Cut(rest, "}")
		if !several {
			names = append(names, part)
			continue
		}
		for m := range strings.SplitSeq(middle, ",") {
			names = append(names, before+m+after)
		}
	}
	return names
}

// units are the units of gauges: a gauge without one counts objects, or is 0 or 1.
var units = []string{"_bytes", "_seconds", "_ratio", "_inodes", "_tasks", "_info"}

// without are gauges without a unit.
var without = []string{
	"jettison_threshold_met", "jettison_condition_status", "jettison_signal_observed", "jettison_source_up", "jettison_evictions_in_progress",
	"jettison_pods", "jettison_breaker_open", "jettison_runtime_connected", "jettison_nri_connected", "jettison_config_last_reload_successful",
	"go_goroutines", "go_threads", "process_open_fds", "process_max_fds",
}

// Prometheus' own parser reads a scrape in which everything has happened. Each family is on the
// page with its type, a text and only the page's labels. Counters end in _total and histograms in
// _seconds. No label belongs to a pod, and Prometheus' linter reports no problem.
func TestPrometheusReadsAScrape(t *testing.T) {
	text, err := os.ReadFile(scraped)
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	got, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	families, rest := table(t)
	common := ofTheProcess(rest)
	for name := range families {
		if got[name] == nil {
			t.Errorf("metric %s is on the page and not in the scrape", name)
		}
	}
	for _, name := range common { // go_* are several, with the Go runtime's names
		begins, several := strings.CutSuffix(name, "*")
		has := func(n string) bool { return several && strings.HasPrefix(n, begins) }
		if got[name] == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(got)), has) {
			t.Errorf("metric %s is on the page and not in the scrape", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		f, is := got[name], families[name]
		if _, ours := families[name]; !ours && !slices.Contains(common, name) {
			t.Errorf("metric %s is not on the page", name)
			continue
		} else if ours && !strings.EqualFold(f.GetType().String(), is.kind) {
			t.Errorf("metric %s is a %v, page has %s", name, f.GetType(), is.kind)
		}
		if help := f.GetHelp(); !strings.HasSuffix(help, ".") || strings.Count(string(text), "# HELP "+name+" ") != 1 {
			t.Errorf("metric %s has a bad HELP %q", name, help)
		}
		named(t, name, f.GetType())
		for _, m := range f.GetMetric() {
			sample(t, name, m, is.labels)
		}
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("problems found by the linter: %+v, %v", problems, err)
	}
	t.Logf("%d families, %d bytes", len(got), len(text))
}

// named checks a name against the type of its family.
func named(t *testing.T, name string, kind dto.MetricType) {
	t.Helper()
	unit := slices.Contains(without, name) || slices.ContainsFunc(units, func(u string) bool { return strings.HasSuffix(name, u) })
	total := strings.HasSuffix(name, "_total")
	switch kind {
	case dto.MetricType_COUNTER:
		if !total {
			t.Errorf("counter %s does not end in _total", name)
		}
	case dto.MetricType_HISTOGRAM:
		if !strings.HasSuffix(name, "_seconds") {
			t.Errorf("histogram %s does not end in _seconds", name)
		}
	case dto.MetricType_GAUGE:
		if total || !unit {
			t.Errorf("gauge %s has no unit in its name", name)
		}
	default:
		t.Errorf("metric %s has unexpected type %v", name, kind)
	}
}

// sample checks a sample against the allowed labels of its family.
func sample(t *testing.T, name string, m *dto.Metric, labels []string) {
	t.Helper()
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case "pod", "pod_uid", "uid", "name", "namespace", "container", "container_id", "image":
			t.Errorf("metric %s has a label of a pod: %s", name, l.GetName())
		}
		if ofGo := name == "go_info" && l.GetName() == "version"; !ofGo && !slices.Contains(labels, l.GetName()) {
			t.Errorf("metric %s has the label %s, page has %v", name, l.GetName(), labels)
		}
	}
	if m.TimestampMs != nil {
		t.Errorf("sample of %s has a timestamp, want none", name)
	}
	for _, v := range []float64{m.GetGauge().GetValue(), m.GetCounter().GetValue()} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Errorf("sample of %s has value %v", name, v)
		}
	}
	if h := m.GetHistogram(); h != nil {
		whole(t, name, h)
	}
}

// whole checks a histogram: bounds and counts of its buckets grow up to the total, and it has a
// sum.
func whole(t *testing.T, name string, h *dto.Histogram) {
	t.Helper()
	if h.SampleSum == nil || h.SampleCount == nil || len(h.GetBucket()) < 2 {
		t.Fatalf("histogram %s lacks buckets or a sum: %v", name, h)
	}
	bound, count := math.Inf(-1), 0.0
	for _, b := range h.GetBucket() {
		if b.GetUpperBound() <= bound || float64(b.GetCumulativeCount()) < count {
			t.Errorf("%s: bucket up to %v with %d, after one up to %v with %v", name, b.GetUpperBound(), b.GetCumulativeCount(), bound, count)
		}
		bound, count = b.GetUpperBound(), float64(b.GetCumulativeCount())
	}
	if !math.IsInf(bound, 1) || count != float64(h.GetSampleCount()) {
		t.Errorf("%s: last bucket is up to %v with %v, of %d", name, bound, count, h.GetSampleCount())
	}
}
