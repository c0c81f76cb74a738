// Package metrics writes the agent's metrics in the text format of Prometheus. The parts of the
// agent count with its instruments, which any goroutine may read at any time. Current values come
// from the State that the loop published last.
//
//	instruments.go  Counter, Vec, Histogram: the instruments of parts
//	text.go         Writer: the text format
//	families.go     Families: name, type, labels, meaning
//	counts.go       the counts of each part, and the loop's published state
//	write.go        Write: writes all families
//	signals.go      families of the node, from the State
//	process.go      families of the process
//
// It does not use github.com/prometheus/client_golang, which adds 21 packages and 0.8 MB of
// privileged code for a few lines of text.
package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Counter is an increasing counter. The zero value is ready for use.
type Counter struct{ n atomic.Uint64 }

// Add adds n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value returns the current value.
func (c *Counter) Value() uint64 { return c.n.Load() }

// maxRows bounds the rows of a Vec, because tenants control some labels.
const maxRows = 64

// other replaces each label of rows beyond maxRows.
const other = "other"

// Vec has counters by labels. The zero value is ready for use.
type Vec struct {
	mu   sync.Mutex
	rows map[string]*row
}

// row is one counter of a Vec.
type row struct {
	labels []string
	n      float64
}

// Add adds n to the counter of labels.
func (v *Vec) Add(n float64, labels ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.row(labels).n += n
}

// Set sets the value of labels, for values that are not counters, such as times.
func (v *Vec) Set(n float64, labels ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.row(labels).n = n
}

// row returns the row of labels, creating it if needed. mu must be held.
func (v *Vec) row(labels []string) *row {
	key := strings.Join(labels, "\x00")
	if r := v.rows[key]; r != nil {
		return r
	}
	if len(v.rows) >= maxRows {
		labels = slices.Repeat([]string{other}, len(labels))
		key = strings.Join(labels, "\x00")
		if r := v.rows[key]; r != nil {
			return r
		}
	}
	if v.rows == nil {
		v.rows = map[string]*row{}
	}
	r := &row{labels: slices.Clone(labels)}
	v.rows[key] = r
	return r
}

// each calls visit for each row, sorted by labels.
func (v *Vec) each(visit func(n float64, labels []string)) {
	v.mu.Lock()
	all := make([]row, 0, len(v.rows))
	for _, r := range v.rows {
		all = append(all, *r)
	}
	v.mu.Unlock()
	slices.SortFunc(all, func(x, y row) int {
		return slices.CompareFunc(x.labels, y.labels, cmp.Compare)
	})
	for _, r := range all {
		visit(r.n, r.labels)
	}
}

// Histogram counts durations in buckets, without allocations or locks. Create it with NewHistogram;
// the methods of a nil Histogram do nothing.
type Histogram struct {
	bounds  []time.Duration // upper bounds, increasing
	buckets []atomic.Uint64 // one more than bounds
	sum     atomic.Int64    // nanoseconds
}

// NewHistogram creates a Histogram with these upper bounds, which must increase.
func NewHistogram(bounds ...time.Duration) *Histogram {
	return &Histogram{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts a duration. A negative duration, of a clock that was set back, counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	if h == nil {
		return
	}
	d = max(d, 0)
	at, _ := slices.BinarySearch(h.bounds, d)
	h.buckets[at].Add(1)
	h.sum.Add(int64(d))
}

// HistogramVec has histograms by one label. Create it with NewHistogramVec.
type HistogramVec struct {
	bounds []time.Duration
	mu     sync.Mutex
	of     map[string]*Histogram
}

// NewHistogramVec creates a HistogramVec with these upper bounds, which must increase.
func NewHistogramVec(bounds ...time.Duration) *HistogramVec {
	return &HistogramVec{bounds: bounds, of: map[string]*Histogram{}}
}

// Observe counts a duration under a label.
func (v *HistogramVec) Observe(d time.Duration, label string) {
	v.mu.Lock()
	h := v.of[label]
	if h == nil && len(v.of) >= maxRows {
		label = other
		h = v.of[label]
	}
	if h == nil {
		h = NewHistogram(v.bounds...)
		v.of[label] = h
	}
	v.mu.Unlock()
	h.Observe(d)
}

func (v *HistogramVec) each(visit func(h *Histogram, label string)) {
	v.mu.Lock()
	labels := make([]string, 0, len(v.of))
	for label := range v.of {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	all := make([]*Histogram, len(labels))
	for i, label := range labels {
		all[i] = v.of[label]
	}
	v.mu.Unlock()
	for i, h := range all {
		visit(h, labels[i])
	}
}

// Upper bounds of buckets.
var (
	// Kills are bounds for durations from a millisecond to a minute.
	Kills = durations(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	// Delays are bounds for durations from 100 µs to a second.
	Delays = durations(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1)
	// Passes are bounds for durations from 10 ms to five minutes.
	Passes = durations(.01, .05, .1, .5, 1, 5, 10, 30, 60, 300)
)

func durations(seconds ...float64) (out []time.Duration) {
	for _, s := range seconds {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}
