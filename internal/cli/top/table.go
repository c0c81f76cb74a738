package top

import (
	"cmp"
	"fmt"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/show"
	"jettison/stats"
)

// row is the line of a pod.
type row struct {
	Pod      string         `json:"pod"`
	UID      string         `json:"uid"`
	QOSClass stats.QOSClass `json:"qos,omitempty"`
	// Frees is the memory that a kill frees at least; null: unknown, as in all fields below.
	Frees          *uint64  `json:"freesBytes"`
	WorkingSet     *uint64  `json:"workingSetBytes"`
	GrowsPerSecond *float64 `json:"growsBytesPerSecond"`  // of the working set
	MemoryStalled  *float64 `json:"memoryStalledPercent"` // share of 10 s in which some task stalled
	IOStalled      *float64 `json:"ioStalledPercent"`     // same for IO
	CPUStalled     *float64 `json:"cpuStalledPercent"`    // same for CPU
	NanoCores      *uint64  `json:"nanoCores"`            // billionths of a core
	Threads        *uint64  `json:"threads"`
}

// rows returns the pods of the last look, sorted.
func (v *view) rows() []row {
	out := make([]row, 0, len(v.summary.Pods))
	for i := range v.summary.Pods {
		p := &v.summary.Pods[i]
		r := row{
			Pod: api.Title(p.PodRef), UID: p.PodRef.UID, QOSClass: p.QOSClass,
			WorkingSet:    pointer(p.Memory.WorkingSetBytes),
			MemoryStalled: someStalled(p.MemoryPressure), IOStalled: someStalled(p.IOPressure),
			CPUStalled: someStalled(p.CPUPressure),
			NanoCores:  pointer(p.CPU.NanoCores), Threads: pointer(p.Threads),
		}
		if freed := p.Memory.FreedBytes; freed.OK {
			r.Frees = &freed.V.Min
		}
		before, known := v.before[p.PodRef.UID]
		if took := p.Memory.Time.Sub(before.at).Seconds(); known && r.WorkingSet != nil && took > 0 {
			grows := (float64(*r.WorkingSet) - float64(before.workingSet)) / took
			r.GrowsPerSecond = &grows
		}
		out = append(out, r)
	}
	order(out, sorts[v.sort])
	return out
}

func pointer(v stats.Opt[uint64]) *uint64 {
	if !v.OK {
		return nil
	}
	return &v.V
}

// someStalled returns the share of time in which some task of a pod stalled, in percent.
func someStalled(p stats.Opt[stats.PSIStats]) *float64 {
	if !p.OK || !p.V.HasSome {
		return nil
	}
	return &p.V.Some.Avg10
}

// print prints rows. live repaints the terminal.
func (v *view) print(rows []row, live bool, out *terminal.Screen) error {
	if v.o.format.Data() {
		return v.o.format.Encode(out, rows, v.o.times != 1)
	}
	wide := v.o.format == output.AsWide
	width := out.Width()
	if wide && !live {
		width = 0
	}
	lines := layout(rows, sorts[v.sort].column).Lines(width, wide)
	if v.listErr != "" {
		lines = append([]terminal.Line{terminal.Text(terminal.Warning, "%s",
			table.Cut(output.OneLine(v.listErr), cmp.Or(width, 200)))}, lines...)
	}
	if !live {
		return out.Print(lines...)
	}
	head := fmt.Sprintf("%s  %s by %s  q: quit, s or arrows: sort", output.Time(v.summary.Time),
		output.Count(len(rows), "pod"), sorts[v.sort].name)
	return out.Repaint(append(
		[]terminal.Line{terminal.Text(terminal.Dim, "%s", table.Cut(head, width))}, lines...))
}

// layout returns the table with a star at the sort column.
func layout(rows []row, sorted string) *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "POD", Cut: true}, {Name: "QOS", Drop: 1}, {Name: "FREED BY KILL", Right: true},
		{Name: "WORKING SET", Right: true},
		{Name: "GROWTH", Right: true}, {Name: "STALLED", Right: true},
		{Name: "IO", Right: true, Wide: true},
		{Name: "CPU STALLED", Right: true, Wide: true}, {Name: "CPU", Right: true},
		{Name: "THREADS", Right: true, Drop: 2},
		{Name: "UID", Wide: true},
	}}
	for i := range t.Columns {
		if t.Columns[i].Name == sorted {
			t.Columns[i].Name += "*"
		}
	}
	for i := range rows {
		r := &rows[i]
		growth := terminal.Span{Text: "-"}
		if r.GrowsPerSecond != nil {
			growth = growthCell(*r.GrowsPerSecond)
		}
		t.Rows = append(t.Rows, []terminal.Span{
			{Text: r.Pod}, {Text: string(r.QOSClass)}, {Text: size(r.Frees)}, {Text: size(r.WorkingSet)},
			growth,
			{Text: percent(r.MemoryStalled)}, {Text: percent(r.IOStalled)}, {Text: percent(r.CPUStalled)},
			{Text: show.Cores(opt(r.NanoCores))}, {Text: show.Count(opt(r.Threads))}, {Text: r.UID},
		})
	}
	return t
}

// fastGrowth is the growth in bytes per second that is coloured: about 1 GiB in two minutes.
const fastGrowth = 8 << 20

func growthCell(perSecond float64) terminal.Span {
	switch {
	case perSecond >= fastGrowth:
		return terminal.Span{Text: "+" + output.Bytes(uint64(perSecond)) + "/s", Style: terminal.Bad}
	case perSecond >= 1:
		return terminal.Span{Text: "+" + output.Bytes(uint64(perSecond)) + "/s"}
	case perSecond <= -1:
		return terminal.Span{Text: "-" + output.Bytes(uint64(-perSecond)) + "/s"}
	}
	return terminal.Span{Text: "0"}
}

func opt(v *uint64) stats.Opt[uint64] {
	if v == nil {
		return stats.Opt[uint64]{}
	}
	return stats.Some(*v)
}

func size(v *uint64) string { return show.Size(opt(v)) }

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", *v)
}
