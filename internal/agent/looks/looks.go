// Package looks reads the node and its pods for the loop: little of the node many times a second,
// more of it once a second, and pods when a victim has to be chosen. What cannot be read is said
// once.
//
//	looks.go   Looks: the cheap look, the slow one
//	pods.go    the dear looks, at pods
//	growth.go  what else grows
//
// The cheap look reads /proc/meminfo and the root's memory.stat on descriptors that stay open.
// Where memory is short it reads /proc/zoneinfo too: MemAvailable leaves out per-CPU lists, where
// most of what a killed pod gives back lies for seconds (kernel 6.12).
//
// The dear look for memory and tasks reads little of all pods: what each uses at most. memory.stat
// costs ten times as much. It is read only of the pod that would be first by that most, until one
// is first by the truth: the victim that a look at everything would have found.
package looks

import (
	"context"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/metrics"
	"jettison/stats"
	"jettison/stats/read"
)

// Options of New.
type Options struct {
	Reader     *read.Reader
	Background *read.Background // nil: neither file systems nor what pods take of them are measured
	// some threshold is for tasks: a fork bomb is through in less than a second
	Tasks bool
	// every look at pods reads all of all, so that frames of it can be decided again by other rules
	All bool
	Log *logthrottle.Logger
}

// Looks is what was last read. It belongs to the loop.
type Looks struct {
	o       Options
	node    stats.NodeStats // each part as last read
	summary stats.Summary   // of the last look at pods
	growth  growth

	last   time.Time // when the last cheap look was
	due    time.Time // when the next one is; zero: not known
	counts *metrics.Looks

	blind map[string]string // errors of sources, as logged, and of signals that are not observed
}

// New makes a Looks that has seen nothing yet.
func New(o Options) *Looks {
	return &Looks{o: o, blind: map[string]string{},
		counts: &metrics.Looks{Delay: metrics.NewHistogram(metrics.Delays...)}}
}

// WatchTasks has tasks read in every cheap look, or not.
func (l *Looks) WatchTasks(watch bool) { l.o.Tasks = watch }

// Reader is what looks read through.
func (l *Looks) Reader() *read.Reader { return l.o.Reader }

// Background measures what may block; nil: nothing does.
func (l *Looks) Background() *read.Background { return l.o.Background }

// Node is what was last read of the node.
func (l *Looks) Node() *stats.NodeStats { return &l.node }

// Summary is the last look at pods.
func (l *Looks) Summary() *stats.Summary { return &l.summary }

// Last is when the last cheap look of the loop was made.
func (l *Looks) Last() time.Time { return l.last }

// First looks at the node before the loop does, and waits for its file systems so long. What cannot
// be read is logged by the loop.
func (l *Looks) First(ctx context.Context, wait time.Duration) {
	now := time.Now()
	_ = l.o.Reader.Node(now, &l.node)
	_ = l.o.Reader.Slow(now, &l.node)
	if b := l.o.Background; b != nil {
		ctx, cancel := context.WithTimeout(ctx, wait)
		b.WaitNode(ctx)
		cancel()
		b.FillNode(time.Now(), &l.node)
	}
}

// Count is how many cheap looks the loop has made.
func (l *Looks) Count() uint64 { return l.counts.Cheap.Value() }

// Counts are how many of each kind, how late they were, and how their sources stand. They are for
// any goroutine.
func (l *Looks) Counts() *metrics.Looks { return l.counts }

// Begin tells that the loop looks now.
func (l *Looks) Begin(now time.Time) {
	l.last = now
	l.counts.Cheap.Add(1)
}

// Due tells when the next cheap look is, if nothing asks for one before; Late, that it is made
// because it is due.
func (l *Looks) Due(at time.Time) { l.due = at }

// Late counts by how much a look is too late.
func (l *Looks) Late(now time.Time) {
	if !l.due.IsZero() {
		l.counts.Delay.Observe(now.Sub(l.due))
	}
}

// Cheap is the cheap look: memory and swap, the cgroup above all pods where it has a limit, tasks
// where a threshold is for them. perCPU: what MemAvailable does not count is read too, which takes
// longer; it is asked after memory was read. It does not allocate.
func (l *Looks) Cheap(now time.Time, perCPU func(*stats.NodeStats) bool) *stats.NodeStats {
	l.readable("memory", &l.counts.Memory, l.o.Reader.Node(now, &l.node))
	if perCPU(&l.node) {
		l.o.Reader.PerCPU(&l.node)
	}
	if l.node.Allocatable.LimitBytes.OK { // the slow look finds out whether there is a limit
		l.readable("pods' cgroup", &l.counts.Allocatable,
			l.o.Reader.Allocatable(now, &l.node.Allocatable))
	}
	if l.o.Tasks {
		l.readable("tasks", &l.counts.Tasks, l.o.Reader.PIDs(now, &l.node.PIDs))
	}
	return &l.node
}

// Slow reads the signals that change slowly. hurry: a disk is short, or nearly, so that what is
// measured of it is measured more often.
func (l *Looks) Slow(now time.Time, hurry bool) {
	l.counts.Slow.Add(1)
	l.readable("node", &l.counts.Node, l.o.Reader.Slow(now, &l.node))
	if b := l.o.Background; b != nil {
		b.FillNode(now, &l.node)
		b.Hurry(hurry)
	}
}

// Grew remembers what the cgroups at the top of the hierarchy use, as long as memory is not short.
func (l *Looks) Grew(now time.Time, short bool) { l.growth.watch(now, l.o.Reader, short) }

// Growing is by how much each of them has grown since memory was not short.
func (l *Looks) Growing() []eviction.Growth { return l.growth.since(l.o.Reader) }

// Errors are the sources that cannot be read, with why, and the signals that are not observed.
func (l *Looks) Errors() map[string]string { return l.blind }

// Lost takes the signals that count as lost (a file system that hangs, a runtime that does not tell
// where its images are). It is logged once that one is, and once that it is observed again.
func (l *Looks) Lost(now []eviction.Lost) {
	for _, lost := range now {
		if source := signalPrefix + string(lost.Signal); l.blind[source] == "" {
			l.blind[source] = lost.Reason
			l.o.Log.Warn("the signal is not observed: its thresholds do nothing", api.EventSource.Attr(),
				"signal", lost.Signal,
				"reason", lost.Reason)
		}
	}
	for source := range l.blind {
		signal, is := strings.CutPrefix(source, signalPrefix)
		if is && !slices.ContainsFunc(now,
			func(lost eviction.Lost) bool { return string(lost.Signal) == signal }) {
			delete(l.blind, source)
			l.o.Log.Info("the signal is observed again", api.EventSource.Attr(), "signal", signal)
		}
	}
}

// signalPrefix tells a signal from a source in what cannot be read.
const signalPrefix = "signal "

// readable logs once that a source cannot be read, and once that it can be again.
func (l *Looks) readable(source string, counts *metrics.Source, err error) {
	counts.Read(err)
	before := l.blind[source]
	switch {
	case err == nil && before != "":
		l.o.Log.Info("everything is read again", api.EventSource.Attr(), "source", source)
		delete(l.blind, source)
	case err != nil && before != err.Error():
		l.o.Log.Error("cannot read the node's "+source, api.EventSource.Attr(), "error", err)
		l.blind[source] = err.Error()
	}
}
