package e2e

import (
	"fmt"
	"io"
	"testing"
	"text/tabwriter"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// row compares one figure of the kubelet with the agent's.
type row struct {
	object, signal string
	kubelet        *uint64    // nil: not reported
	ours           [2]*uint64 // before and after the kubelet's; nil: not reported
	difference     uint64     // distance of the kubelet's figure from the range of ours
	tolerance      uint64
	ok             bool
}

// readings has the figures of a summary by object ("node", "default/pod", "default/pod main") and
// signal.
type readings struct {
	keys   []readingKey // in the summary's order
	values map[readingKey]uint64
}

type readingKey struct{ kind, object, signal string }

// tolerances has the largest expected difference between two readings of an idle node that are
// seconds apart, by kind of object and signal. Signals that are not listed must be equal.
var tolerances = map[string]uint64{
	// A query starts a second process of the agent, and runc, in the guest. The kubelet's figures
	// are from another moment.
	"node memory.availableBytes": 48 * mib, "node memory.usageBytes": 64 * mib, "node memory.workingSetBytes": 48 * mib, "node memory.rssBytes": 48 * mib,
	"node swap.swapAvailableBytes": mib, "node swap.swapUsageBytes": mib,
	"node rlimit.curproc": 48,
	// The emulated CPU is busy with the kubelet, whose figure is up to 20 s old.
	"node cpu.usageCoreNanoSeconds": 25e9,
	// Logs are written, and snapshots measured, between the readings.
	"node fs.availableBytes": 8 * mib, "node fs.usedBytes": 8 * mib, "node fs.inodesFree": 256, "node fs.inodesUsed": 256,
	"node imageFs.availableBytes": 8 * mib, "node imageFs.usedBytes": 8 * mib, "node imageFs.inodesFree": 256, "node imageFs.inodesUsed": 256,
	// The kernel counts in batches of pages per CPU (mm/memcontrol.c, MEMCG_CHARGE_BATCH) and
	// flushes every 2 s.
	"pod memory.usageBytes": 2 * mib, "pod memory.workingSetBytes": 2 * mib, "pod memory.rssBytes": mib,
	"container memory.usageBytes": 2 * mib, "container memory.workingSetBytes": 2 * mib, "container memory.rssBytes": mib,
	// An idle Go program wakes up a few times a second at most.
	"pod cpu.usageCoreNanoSeconds": 1e9, "container cpu.usageCoreNanoSeconds": 1e9,
	// Neighbour discovery.
	"pod network.rxBytes": 4096, "pod network.txBytes": 4096,
	// Blocks of folders: only one of the two counts them.
	"pod ephemeral-storage.usedBytes": 128 << 10, "container logs.usedBytes": 16 << 10, "container rootfs.usedBytes": 64 << 10,
	"pod ephemeral-storage.inodesUsed": 16, "container logs.inodesUsed": 4, "container rootfs.inodesUsed": 16,
}

// compare compares the kubelet's summary with two of the agent's, read before and after it. A
// figure of the kubelet must be within the range of the agent's, plus the tolerance. Figures that
// the kubelet does not report are skipped.
func compare(before, kubelet, after *statsapi.Summary) []row {
	theirs, first, second := read(kubelet), read(before), read(after)
	var rows []row
	for _, key := range theirs.keys {
		value := theirs.values[key]
		r := row{object: key.object, signal: key.signal, kubelet: &value, tolerance: tolerances[key.kind+" "+key.signal]}
		for i, from := range []readings{first, second} {
			if v, ok := from.values[key]; ok {
				r.ours[i] = &v
			}
		}
		if r.ours[0] != nil && r.ours[1] != nil {
			low, high := min(*r.ours[0], *r.ours[1]), max(*r.ours[0], *r.ours[1])
			switch {
			case value < low:
				r.difference = low - value
			case value > high:
				r.difference = value - high
			}
			r.ok = r.difference <= r.tolerance
		}
		rows = append(rows, r)
	}
	return rows
}

func read(s *statsapi.Summary) readings {
	r := readings{values: map[readingKey]uint64{}}
	node := r.object("node", "node")
	node.memory(s.Node.Memory)
	node.cpu(s.Node.CPU)
	if swap := s.Node.Swap; swap != nil {
		node.add("swap.swapAvailableBytes", swap.SwapAvailableBytes)
		node.add("swap.swapUsageBytes", swap.SwapUsageBytes)
	}
	node.fs("fs", s.Node.Fs)
	if s.Node.Runtime != nil {
		node.fs("imageFs", s.Node.Runtime.ImageFs)
	}
	if l := s.Node.Rlimit; l != nil {
		node.signed("rlimit.maxpid", l.MaxPID)
		node.signed("rlimit.curproc", l.NumOfRunningProcesses)
	}
	for _, p := range s.Pods {
		name := p.PodRef.Namespace + "/" + p.PodRef.Name
		pod := r.object("pod", name)
		pod.memory(p.Memory)
		pod.cpu(p.CPU)
		pod.swap(p.Swap)
		pod.fs("ephemeral-storage", p.EphemeralStorage)
		if p.Network != nil {
			pod.add("network.rxBytes", p.Network.RxBytes)
			pod.add("network.txBytes", p.Network.TxBytes)
		}
		if p.ProcessStats != nil {
			pod.add("process_stats.process_count", p.ProcessStats.ProcessCount)
		}
		for _, c := range p.Containers {
			container := r.object("container", name+" "+c.Name)
			container.memory(c.Memory)
			container.cpu(c.CPU)
			container.swap(c.Swap)
			container.use("rootfs", c.Rootfs)
			container.use("logs", c.Logs)
		}
	}
	return r
}

// object collects the figures of one object.
type object struct {
	readings     *readings
	kind, object string
}

func (r *readings) object(kind, name string) object { return object{r, kind, name} }

func (o object) add(signal string, value *uint64) {
	if value != nil {
		key := readingKey{o.kind, o.object, signal}
		o.readings.keys = append(o.readings.keys, key)
		o.readings.values[key] = *value
	}
}

func (o object) signed(signal string, value *int64) {
	if value != nil {
		unsigned := uint64(*value)
		o.add(signal, &unsigned)
	}
}

func (o object) memory(m *statsapi.MemoryStats) {
	if m != nil {
		o.add("memory.availableBytes", m.AvailableBytes)
		o.add("memory.usageBytes", m.UsageBytes)
		o.add("memory.workingSetBytes", m.WorkingSetBytes)
		o.add("memory.rssBytes", m.RSSBytes)
	}
}

func (o object) cpu(c *statsapi.CPUStats) {
	if c != nil {
		o.add("cpu.usageCoreNanoSeconds", c.UsageCoreNanoSeconds)
	}
}

// swap skips the available swap, which the kubelet reports for a container and not for its pod.
func (o object) swap(s *statsapi.SwapStats) {
	if s != nil {
		o.add("swap.swapUsageBytes", s.SwapUsageBytes)
	}
}

// use collects an object's usage of a file system; fs collects the file system's figures, too.
func (o object) use(name string, f *statsapi.FsStats) {
	if f != nil {
		o.add(name+".usedBytes", f.UsedBytes)
		o.add(name+".inodesUsed", f.InodesUsed)
	}
}

func (o object) fs(name string, f *statsapi.FsStats) {
	if f != nil && o.kind == "node" {
		o.add(name+".availableBytes", f.AvailableBytes)
		o.add(name+".capacityBytes", f.CapacityBytes)
		o.add(name+".inodesFree", f.InodesFree)
		o.add(name+".inodes", f.Inodes)
	}
	o.use(name, f)
}

// comparable removes figures without a counterpart from the kubelet's summary: the measuring pod,
// and the network of pods with the host's network, for which the kubelet reports the node's eth0.
func comparable(s *statsapi.Summary, measuring string, ownNetwork string) *statsapi.Summary {
	out := *s
	out.Pods = nil
	for _, p := range s.Pods {
		if p.PodRef.Name == measuring {
			continue
		}
		if p.PodRef.Name != ownNetwork {
			p.Network = nil
		}
		out.Pods = append(out.Pods, p)
	}
	return &out
}

func printRows(to io.Writer, rows []row) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "object\tsignal\tkubelet\tours before\tours after\tdifference\ttolerance\t")
	show := func(v *uint64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	for _, r := range rows {
		verdict := ""
		if !r.ok {
			verdict = "OUT"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", r.object, r.signal, show(r.kubelet), show(r.ours[0]), show(r.ours[1]), r.difference, r.tolerance, verdict)
	}
	return w.Flush()
}

// Equal figures pass, as do those outside of the agent's range by at most the tolerance. Larger
// differences fail, and so does a missing figure that the kubelet reports.
func TestCompareSummaries(t *testing.T) {
	summary := func(workingSet, maxPID uint64, pods ...string) *statsapi.Summary {
		signed := int64(maxPID)
		s := &statsapi.Summary{Node: statsapi.NodeStats{
			Memory: &statsapi.MemoryStats{WorkingSetBytes: &workingSet}, Rlimit: &statsapi.RlimitStats{MaxPID: &signed},
		}}
		for _, name := range pods {
			count := uint64(2)
			s.Pods = append(s.Pods, statsapi.PodStats{
				PodRef: statsapi.PodReference{Name: name, Namespace: "default"}, ProcessStats: &statsapi.ProcessStats{ProcessCount: &count},
			})
		}
		return s
	}
	const slack = 48 * mib
	for _, c := range []struct {
		name                   string
		before, kubelet, after *statsapi.Summary
		want                   string // of each row in turn: the difference, and ! where it is out
	}{
		{"equal", summary(500*mib, 7), summary(500*mib, 7), summary(500*mib, 7), "0 0 "},
		{"between, ours falling", summary(600*mib, 7), summary(550*mib, 7), summary(500*mib, 7), "0 0 "},
		{"below by the tolerance", summary(600*mib, 7), summary(500*mib-slack, 7), summary(500*mib, 7), "50331648 0 "},
		{"below by more", summary(600*mib, 7), summary(500*mib-slack-1, 7), summary(500*mib, 7), "50331649! 0 "},
		{"above by more", summary(500*mib, 7), summary(600*mib+slack+1, 7), summary(600*mib, 7), "50331649! 0 "},
		{"no tolerance is none", summary(0, 7), summary(0, 8), summary(0, 7), "0 1! "},
		{"a pod that we do not have", summary(0, 7), summary(0, 7, "a"), summary(0, 7, "a"), "0 0 0! "},
		{"a pod that the kubelet does not have", summary(0, 7, "a"), summary(0, 7), summary(0, 7, "a"), "0 0 "},
		{"the same pod", summary(0, 7, "a"), summary(0, 7, "a"), summary(0, 7, "a"), "0 0 0 "},
	} {
		got := ""
		for _, r := range compare(c.before, c.kubelet, c.after) {
			got += fmt.Sprint(r.difference)
			if !r.ok {
				got += "!"
			}
			got += " "
		}
		if got != c.want {
			t.Errorf("%s: compared rows = %q, want %q", c.name, got, c.want)
		}
	}
}
