// Package metrics says how the agent does, in the text format of Prometheus. The parts of the agent
// count with its instruments, which any goroutine may read at any time; what is not counted, but is
// so at the moment, is taken from the State that the loop has published.
//
//	instruments.go  Counter, Vec, Histogram: what parts count with
//	text.go         Writer: the text format
//	families.go     which families there are: name, type, labels, meaning
//	counts.go       what each part counts, and what the loop publishes
//	write.go        Write: all of them
//	signals.go      those of the node, from the State
//	process.go      the process's own
//
// There is a writer of its own because github.com/prometheus/client_golang is 21 packages and 0.8
// MB of privileged code for a few lines of text.
package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Counter only grows. The zero value is ready.
type Counter struct{ n atomic.Uint64 }

// Add adds to it.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value is its value.
func (c *Counter) Value() uint64 { return c.n.Load() }

// maxRows bounds the rows of a Vec: some labels are in a tenant's hand.
const maxRows = 64

// other is in place of each label of rows beyond that.
const other = "other"

// Vec are counters by labels. The zero value is ready.
type Vec struct {
	mu   sync.Mutex
	rows map[string]*row
}

// row is one counter of a Vec.
type row struct {
	labels []string
	n      float64
}

// Add adds to the counter of labels.
func (v *Vec) Add(n float64, labels ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.row(labels).n += n
}

// Set sets the counter of labels, for what is no counter but the time of something.
func (v *Vec) Set(n float64, labels ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.row(labels).n = n
}

// row finds one, or makes it. mu is held.
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

// each goes through the rows in the order of their labels.
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

// Histogram counts durations in classes. It allocates nothing and has no lock. Make it with
// NewHistogram; the methods of a nil one do nothing.
type Histogram struct {
	bounds  []time.Duration // upper ones, growing
	classes []atomic.Uint64 // one more than bounds
	sum     atomic.Int64    // nanoseconds
}

// NewHistogram makes a Histogram of classes with these upper bounds, which grow.
func NewHistogram(bounds ...time.Duration) *Histogram {
	return &Histogram{bounds: bounds, classes: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts a duration. One below 0 is a clock's that went back, and counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	if h == nil {
		return
	}
	d = max(d, 0)
	at, _ := slices.BinarySearch(h.bounds, d)
	h.classes[at].Add(1)
	h.sum.Add(int64(d))
}

// HistogramVec are histograms by one label. The zero value has no classes: make it with
// NewHistogramVec.
type HistogramVec struct {
	bounds []time.Duration
	mu     sync.Mutex
	of     map[string]*Histogram
}

// NewHistogramVec makes a HistogramVec of classes with these upper bounds, which grow.
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

// Upper bounds of classes.
var (
	// Kills are bounds for what takes from a millisecond to a minute.
	Kills = durations(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	// Delays are bounds for what takes from 100 µs to a second.
	Delays = durations(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1)
	// Passes are bounds for what takes from 10 ms to five minutes.
	Passes = durations(.01, .05, .1, .5, 1, 5, 10, 30, 60, 300)
)

func durations(seconds ...float64) (out []time.Duration) {
	for _, s := range seconds {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}
