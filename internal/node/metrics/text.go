package metrics

import (
	"strconv"
	"strings"
	"time"
)

// Writer writes the text format of Prometheus, version 0.0.4: HELP and TYPE of each family, then
// its samples.
type Writer struct{ text []byte }

// Text returns the written text.
func (w *Writer) Text() []byte { return w.text }

// help escapes texts of HELP, value escapes values of labels.
var (
	help  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	value = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
)

// Family writes the header of a family.
func (w *Writer) Family(name, kind, meaning string) {
	w.text = append(w.text, "# HELP "+name+" "+help.Replace(meaning)+"\n# TYPE "+name+" "+kind+"\n"...)
}

// Sample writes a sample. labels alternate between names and values; at is its time, zero: now.
func (w *Writer) Sample(name string, v float64, at time.Time, labels ...string) {
	w.text = append(w.text, name...)
	for i := 0; i+1 < len(labels); i += 2 {
		c := byte(',')
		if i == 0 {
			c = '{'
		}
		w.text = append(w.text, c)
		w.text = append(w.text, labels[i]...)
		w.text = append(w.text, `="`...)
		w.text = append(w.text, value.Replace(strings.ToValidUTF8(labels[i+1], "�"))...)
		w.text = append(w.text, '"')
	}
	if len(labels) > 1 {
		w.text = append(w.text, '}')
	}
	w.text = append(w.text, ' ')
	w.text = strconv.AppendFloat(w.text, v, 'g', -1, 64)
	if !at.IsZero() {
		w.text = append(w.text, ' ')
		w.text = strconv.AppendInt(w.text, at.UnixMilli(), 10)
	}
	w.text = append(w.text, '\n')
}

// Vec writes the samples of counters by labels.
func (w *Writer) Vec(name string, v *Vec, labels ...string) {
	pairs := make([]string, 2*len(labels))
	v.each(func(n float64, values []string) {
		for i := range labels {
			pairs[2*i], pairs[2*i+1] = labels[i], values[i]
		}
		w.Sample(name, n, time.Time{}, pairs...)
	})
}

// histogram writes the samples of a histogram.
func (w *Writer) histogram(name string, h *Histogram, labels ...string) {
	sum := uint64(0)
	labels = append(labels[:len(labels):len(labels)], "le", "")
	for i := range h.buckets {
		sum += h.buckets[i].Load()
		labels[len(labels)-1] = "+Inf"
		if i < len(h.bounds) {
			labels[len(labels)-1] = strconv.FormatFloat(h.bounds[i].Seconds(), 'g', -1, 64)
		}
		w.Sample(name+"_bucket", float64(sum), time.Time{}, labels...)
	}
	labels = labels[:len(labels)-2]
	w.Sample(name+"_sum", time.Duration(h.sum.Load()).Seconds(), time.Time{}, labels...)
	w.Sample(name+"_count", float64(sum), time.Time{}, labels...)
}
