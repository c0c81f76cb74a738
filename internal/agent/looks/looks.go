// Package looks reads the node and its pods for the loop: a little of the node many times a second,
// more of it once a second, and pods when a victim must be chosen. An unreadable source is logged
// once.
//
//	looks.go   Looks: the cheap look and the slow look
//	pods.go    the full looks, at pods
//	growth.go  cgroups that grow outside of pods
//
// The cheap look reads /proc/meminfo and the root's memory.stat on descriptors that stay open. If
// memory is short it also reads /proc/zoneinfo: MemAvailable excludes per-CPU lists, which hold
// most of a killed pod's memory for seconds (kernel 6.12).
//
// The full look for memory and tasks reads only an upper bound of each pod's usage. Reading
// memory.stat costs ten times as much. So the look reads it only for the pod that ranks first by
// its upper bound, and repeats that until the first pod ranks by its exact usage. That pod is the
// victim that a complete reading would give.
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

// Options configures New.
type Options struct {
	Reader     *read.Reader
	Background *read.Background // nil: file systems and their usage by pods are not measured
	// Tasks: a threshold for tasks exists. A fork bomb exhausts them in less than a second.
	Tasks bool
	// All: every look at pods reads everything of all pods, so that its frame can be replayed under
	// other rules.
	All bool
	Log *logthrottle.Logger
}

// Looks holds the latest readings. It belongs to the loop.
type Looks struct {
	o       Options
	node    stats.NodeStats // each part as last read
	summary stats.Summary   // of the last look at pods
	growth  growth

	last   time.Time // time of the last cheap look
	due    time.Time // when the next one is due; zero: unknown
	counts *metrics.Looks
	zfs    metrics.Source

	unreadable map[string]string // errors of sources as logged, and reasons of lost signals
}

// New creates a Looks without readings.
func New(o Options) *Looks {
	return &Looks{o: o, unreadable: map[string]string{},
		counts: &metrics.Looks{Delay: metrics.NewHistogram(metrics.Delays...)}}
}

// WatchTasks sets whether every cheap look reads tasks.
func (l *Looks) WatchTasks(watch bool) { l.o.Tasks = watch }

// Reader returns the reader of all looks.
func (l *Looks) Reader() *read.Reader { return l.o.Reader }

// Background returns the reader for sources that may block; nil without one.
func (l *Looks) Background() *read.Background { return l.o.Background }

// Node returns the last reading of the node.
func (l *Looks) Node() *stats.NodeStats { return &l.node }

// Summary returns the last look at pods.
func (l *Looks) Summary() *stats.Summary { return &l.summary }

// Last returns the time of the loop's last cheap look.
func (l *Looks) Last() time.Time { return l.last }

// First reads the node before the loop starts, and waits up to wait for its file systems. The loop
// logs unreadable sources.
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

// Count returns the number of the loop's cheap looks.
func (l *Looks) Count() uint64 { return l.counts.Cheap.Value() }

// Counts returns the number of looks of each kind, their delays, and the state of their sources. It
// is safe for concurrent use.
func (l *Looks) Counts() *metrics.Looks { return l.counts }

// Begin records the start of a cheap look.
func (l *Looks) Begin(now time.Time) {
	l.last = now
	l.counts.Cheap.Add(1)
}

// SetDue sets the time of the next cheap look, unless an event requests an earlier one.
func (l *Looks) SetDue(at time.Time) { l.due = at }

// RecordDelay records how late a scheduled look begins.
func (l *Looks) RecordDelay(now time.Time) {
	if !l.due.IsZero() {
		l.counts.Delay.Observe(now.Sub(l.due))
	}
}

// Cheap makes the cheap look: memory and swap, the cgroup above all pods if it has a limit, and
// tasks if a threshold for them exists. After reading memory it calls perCPU, which returns whether
// to read per-CPU lists too: MemAvailable excludes them, and reading them takes longer. Cheap does
// not allocate.
func (l *Looks) Cheap(now time.Time, perCPU func(*stats.NodeStats) bool) *stats.NodeStats {
	l.logSource("memory", &l.counts.Memory, l.o.Reader.Node(now, &l.node))
	if perCPU(&l.node) {
		l.o.Reader.PerCPU(&l.node)
	}
	if l.node.Allocatable.LimitBytes.OK { // the slow look reads whether a limit exists
		l.logSource("pods' cgroup", &l.counts.Allocatable,
			l.o.Reader.Allocatable(now, &l.node.Allocatable))
	}
	if l.o.Tasks {
		l.logSource("tasks", &l.counts.Tasks, l.o.Reader.PIDs(now, &l.node.PIDs))
	}
	return &l.node
}

// Slow reads the signals that change slowly. hurry: a disk is short or nearly so, and is measured
// more often.
func (l *Looks) Slow(now time.Time, hurry bool) {
	l.counts.Slow.Add(1)
	l.logSource("node", &l.counts.Node, l.o.Reader.Slow(now, &l.node))
	l.logSource("ZFS cache", &l.zfs, l.o.Reader.ZFS(now))
	if b := l.o.Background; b != nil {
		b.FillNode(now, &l.node)
		b.Hurry(hurry)
	}
}

// RecordUsage stores the usage of the cgroups at the top of the hierarchy while memory is not
// short.
func (l *Looks) RecordUsage(now time.Time, short bool) { l.growth.record(now, l.o.Reader, short) }

// Growth returns the growth of each of these cgroups after memory became short.
func (l *Looks) Growth() []eviction.Growth { return l.growth.grown(l.o.Reader) }

// Errors returns the unreadable sources and the lost signals with their reasons.
func (l *Looks) Errors() map[string]string { return l.unreadable }

// UpdateLost receives the signals that count as lost, such as of a file system that hangs, or of a
// runtime that does not report its image file system. Each loss and each recovery is logged once.
func (l *Looks) UpdateLost(now []eviction.Lost) {
	for _, lost := range now {
		if source := signalPrefix + string(lost.Signal); l.unreadable[source] == "" {
			l.unreadable[source] = lost.Reason
			//log: A signal has no observation any more. Its thresholds have no effect until it is observed
			//  again.
			//do: See the key reason: repair the file system or the runtime that the signal is read from.
			l.o.Log.Warn("signal lost", api.EventSource.Attr(),
				"signal", lost.Signal,
				"reason", lost.Reason)
		}
	}
	for source := range l.unreadable {
		signal, is := strings.CutPrefix(source, signalPrefix)
		if is && !slices.ContainsFunc(now,
			func(lost eviction.Lost) bool { return string(lost.Signal) == signal }) {
			delete(l.unreadable, source)
			//log: A lost signal is observed again, and its thresholds have effect.
			l.o.Log.Info("signal observed again", api.EventSource.Attr(), "signal", signal)
		}
	}
}

// signalPrefix marks a signal among the sources in Looks.unreadable.
const signalPrefix = "signal "

// logSource counts a read of a source, and logs each failure and each recovery once.
func (l *Looks) logSource(source string, counts *metrics.Source, err error) {
	counts.Read(err)
	before := l.unreadable[source]
	switch {
	case err == nil && before != "":
		//log: A source that the agent could not read is readable again.
		l.o.Log.Info("source readable again", api.EventSource.Attr(), "source", source)
		delete(l.unreadable, source)
	case err != nil && before != err.Error():
		//log: The agent cannot read a source of the node's signals, such as memory or tasks. Signals from
		//  this source are not updated. Of ZFS' cache, the last known size counts.
		//do: See the key error. Check the agent's mounts of /proc and /sys/fs/cgroup and its privileges.
		l.o.Log.Error("source unreadable", api.EventSource.Attr(), "source", source, "error", err)
		l.unreadable[source] = err.Error()
	}
}
