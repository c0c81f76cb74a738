package show

import (
	"fmt"
	"io"
	"os"

	"jettison/internal/observe"
	"jettison/internal/summaryv1"
	"jettison/internal/table"
	"jettison/internal/terminal"
	"jettison/stats"
)

// Node prints what a look at a node has found, as tables or as one Summary of the kubelet's (stats/v1alpha1). by is how memory.available
// is computed in the table. What could not be seen is named on stderr.
func Node(look *observe.Look, by stats.MemoryAvailable, as Format, stdout *terminal.Screen, stderr io.Writer) error {
	for _, err := range []error{look.Runtime.Err, look.HostErr, look.Err, look.Summary.Err()} {
		for _, line := range errorLines(err) {
			fmt.Fprintln(stderr, "jettison: stats:", line)
		}
	}
	if as.Data() {
		host, _ := os.Hostname()
		return as.EncodeIndented(stdout, summaryv1.From(&look.Summary, host))
	}
	return usage(stdout, look, by, as == AsWide)
}

// usage prints a table of the signals and one of the pods.
func usage(stdout *terminal.Screen, look *observe.Look, by stats.MemoryAvailable, wide bool) error {
	signals := &table.Table{Columns: []table.Column{
		{Name: "SIGNAL"}, {Name: "AVAILABLE", Right: true}, {Name: "OF", Right: true}, {Name: "SHARE", Right: true},
	}}
	for _, signal := range stats.Signals {
		if o := look.Summary.Observe(look.Time, signal, by); o.OK {
			signals.Add(string(signal), Amount(signal, o.Value), Amount(signal, o.Capacity), Percent(o))
		}
	}
	if err := signals.Print(stdout, wide); err != nil {
		return err
	}
	pods := &table.Table{Columns: []table.Column{
		{Name: "POD", Cut: true}, {Name: "QOS"}, {Name: "WORKING SET", Right: true}, {Name: "REQUEST", Right: true, Drop: 6},
		{Name: "FREED BY KILL", Right: true, Drop: 7}, {Name: "THREADS", Right: true, Drop: 3}, {Name: "CPU", Right: true, Drop: 5},
		{Name: "DISK", Right: true, Drop: 4}, {Name: "OOM KILLS", Right: true, Drop: 1}, {Name: "RESTARTS", Right: true, Drop: 2},
		{Name: "UID", Wide: true}, {Name: "CGROUP", Wide: true},
	}}
	for i := range look.Summary.Pods {
		p := &look.Summary.Pods[i]
		name := p.PodRef.Namespace + "/" + p.PodRef.Name
		if !p.Announced {
			name = "uid:" + p.PodRef.UID
		}
		oom := stats.Opt[uint64]{V: p.Events.V.OOMKill, OK: p.Events.OK}
		pods.Add(name, string(p.QOSClass), Size(p.Memory.WorkingSetBytes), Between(p.MemoryRequest), Between(p.Memory.FreedBytes),
			Count(p.Threads), Cores(p.CPU.NanoCores), Size(p.EphemeralStorage.UsedBytes), Count(oom), Count(p.Restarts), p.PodRef.UID, p.Cgroup)
	}
	if err := stdout.Print(nil); err != nil {
		return err
	}
	return pods.Print(stdout, wide)
}
