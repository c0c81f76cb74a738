package looks

import (
	"errors"
	"time"

	"jettison/eviction"
	"jettison/stats"
	"jettison/stats/read"
)

// quickReads is how many pods are read one by one before all are: a pod may have a lot of page
// cache.
const quickReads = 16

// Pods looks at everything of every pod.
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

// Victims is the look that an eviction for memory is decided by: little of every pod, and all of
// those that may be chosen, as the manager says. The node's figures that are not read anew are as
// they were.
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
		i := m.Unread(now, in)
		switch {
		case i < 0:
			return err
		case n == quickReads:
			return errors.Join(err, l.o.Reader.Memory(now, pods, &l.summary))
		}
		if wrong := l.o.Reader.QuickPod(now, pods, &l.summary, i); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
}

// Memory completes the last look at pods: all of them are read as far as memory goes.
func (l *Looks) Memory(now time.Time, pods read.Index) error {
	return l.o.Reader.Memory(now, pods, &l.summary)
}

// WithPerCPU is the node as last read, with memory on per-CPU lists read now.
func (l *Looks) WithPerCPU() stats.NodeStats {
	node := l.node
	l.o.Reader.PerCPU(&node)
	return node
}
