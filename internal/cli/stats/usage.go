// Package stats implements jettison stats: it prints the resource usage of a node and its pods.
package stats

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"jettison/internal/base/output"
	"jettison/internal/base/printable"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/show"
	"jettison/internal/node/observe"
	"jettison/internal/node/summaryv1"
	"jettison/stats"
)

// printLook prints a look as tables, or as a Summary of the kubelet (stats/v1alpha1). by selects
// how memory.available is computed in the table. Errors of sources are reported on stderr.
func printLook(look *observe.Look, by stats.MemoryAvailable, as output.Format,
	stdout *terminal.Screen, stderr io.Writer) error {
	for _, err := range []error{look.Runtime.Err, look.HostErr, look.Err, look.Summary.Err()} {
		for _, line := range errorLines(err) {
			fmt.Fprintln(stderr, "jettison: stats:", line)
		}
	}
	if as.Data() {
		host, _ := os.Hostname()
		return as.EncodeIndented(stdout, summaryv1.From(&look.Summary, host))
	}
	return usage(stdout, look, by, as == output.AsWide)
}

// usage prints a table of the signals and one of the pods.
func usage(stdout *terminal.Screen, look *observe.Look, by stats.MemoryAvailable, wide bool) error {
	signals := &table.Table{Columns: []table.Column{
		{Name: "SIGNAL"}, {Name: "AVAILABLE", Right: true}, {Name: "OF", Right: true},
		{Name: "SHARE", Right: true},
	}}
	for _, signal := range stats.Signals {
		if o := look.Summary.Observe(look.Time, signal, by); o.OK {
			signals.Add(string(signal), show.Amount(signal, o.Value), show.Amount(signal, o.Capacity),
				show.Percent(o))
		}
	}
	if err := signals.Print(stdout, wide); err != nil {
		return err
	}
	pods := &table.Table{Columns: []table.Column{
		{Name: "POD", Cut: true}, {Name: "QOS"}, {Name: "WORKING SET", Right: true},
		{Name: "REQUEST", Right: true, Drop: 6},
		{Name: "FREED BY KILL", Right: true, Drop: 7}, {Name: "THREADS", Right: true, Drop: 3},
		{Name: "CPU", Right: true, Drop: 5},
		{Name: "DISK", Right: true, Drop: 4}, {Name: "OOM KILLS", Right: true, Drop: 1},
		{Name: "RESTARTS", Right: true, Drop: 2},
		{Name: "UID", Wide: true}, {Name: "CGROUP", Wide: true},
	}}
	for i := range look.Summary.Pods {
		p := &look.Summary.Pods[i]
		name := p.PodRef.Namespace + "/" + p.PodRef.Name
		if !p.Announced {
			name = "uid:" + p.PodRef.UID
		}
		oom := stats.Opt[uint64]{V: p.Events.V.OOMKill, OK: p.Events.OK}
		pods.Add(name, string(p.QOSClass), show.Size(p.Memory.WorkingSetBytes),
			show.Between(p.MemoryRequest), show.Between(p.Memory.FreedBytes),
			show.Count(p.Threads), show.Cores(p.CPU.NanoCores), show.Size(p.EphemeralStorage.UsedBytes),
			show.Count(oom), show.Count(p.Restarts),
			p.PodRef.UID, p.Cgroup)
	}
	if err := stdout.Print(nil); err != nil {
		return err
	}
	return pods.Print(stdout, wide)
}

// errorLines returns a line for each error joined in err. A line end within an error's own text
// belongs to a name, such as that of a tenant's cgroup: it is escaped, so that no tenant can forge
// a line.
func errorLines(err error) (lines []string) {
	if err == nil {
		return nil
	}
	text := err.Error()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var texts []string
		for _, one := range joined.Unwrap() {
			texts = append(texts, one.Error())
			lines = append(lines, errorLines(one)...)
		}
		if strings.Join(texts, "\n") == text {
			return lines
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		if before, ok := strings.CutSuffix(text, inner.Error()); ok {
			if lines = errorLines(inner); len(lines) > 0 {
				lines[0] = printable.Text(before) + lines[0]
				return lines
			}
		}
	}
	return []string{printable.Text(text)}
}
