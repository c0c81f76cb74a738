package looks

import (
	"errors"
	"time"

	"jettison/eviction"
	"jettison/stats"
	"jettison/stats/read"
)

// maxQuickReads limits the pods that Victims reads one by one before it reads all: many pods may
// have a large page cache, and so an upper bound far above their usage.
const maxQuickReads = 16

// Pods reads everything of every pod.
func (l *Looks) Pods(now time.Time, pods read.Index) error {
	l.counts.Full.Add(1)
	l.summary.Node = l.node
	err := l.o.Reader.Collect(now, pods, &l.summary)
	if b := l.o.Background; b != nil {
		b.Fill(time.Now(), &l.summary)
	}
	l.node = l.summary.Node
	return err
}

// Victims makes the full look for an eviction for memory or tasks. It reads a few figures of every
// pod, and all memory figures of the pods that the manager requests. Figures of the node that are
// not read again keep their values.
func (l *Looks) Victims(now time.Time, pods read.Index, objects map[string]*eviction.Pod,
	m *eviction.Manager) error {
	l.counts.Victims.Add(1)
	l.summary.Node = l.node
	err := l.readVictims(now, pods, objects, m)
	l.node = l.summary.Node
	return err
}

func (l *Looks) readVictims(now time.Time, pods read.Index, objects map[string]*eviction.Pod,
	m *eviction.Manager) error {
	if l.o.All {
		return l.o.Reader.Memory(now, pods, &l.summary)
	}
	err := l.o.Reader.Quick(now, pods, &l.summary)
	in := eviction.Input{Summary: &l.summary, Pods: objects, MemoryOnly: true}
	for n := 0; ; n++ {
		i := m.PodToRead(now, in)
		switch {
		case i < 0:
			return err
		case n == maxQuickReads:
			return errors.Join(err, l.o.Reader.Memory(now, pods, &l.summary))
		}
		if wrong := l.o.Reader.QuickPod(now, pods, &l.summary, i); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
}

// Memory completes the last look at pods: it reads the memory figures of all pods.
func (l *Looks) Memory(now time.Time, pods read.Index) error {
	return l.o.Reader.Memory(now, pods, &l.summary)
}

// WithPerCPU returns the last reading of the node, with memory on per-CPU lists read now.
func (l *Looks) WithPerCPU() stats.NodeStats {
	node := l.node
	l.o.Reader.PerCPU(&node)
	return node
}
