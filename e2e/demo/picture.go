package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// picture shows a run at a glance: memory over time, the threshold, the kill.
type picture struct {
	Title   string        `json:"title"`
	Samples []pictured    `json:"samples"` // in time order
	Killed  time.Duration `json:"killed"`  // time after the first sample; 0: no kill
	Victim  string        `json:"victim"`
	Told    []string      `json:"told"` // lines below the curve
}

// pictured is one sample of the node's memory.
type pictured struct {
	At        time.Duration `json:"at"`
	Available int64         `json:"available"` // bytes
}

// Sizes in pixels.
const (
	wide, high         = 820, 380
	left, right        = 72, 24
	top, bottom        = 56, 96
	most               = 400 // points of the curve; each is the lowest of its interval
	plotWide, plotHigh = wide - left - right, high - top - bottom
)

// style has colours for light and dark readers. The browser selects one, also for an image in a
// README.
const style = `<style>
:root{--g:#fff;--i:#1b2430;--d:#566273;--l:#dde2e9;--c:#2563a8;--b:#b3261e}
@media(prefers-color-scheme:dark){:root{--g:#11161d;--i:#dfe6ee;--d:#9aa7b6;--l:#2c3643;--c:#6ea8e6;--b:#ff8a80}}
.g{fill:var(--g)}text{font:13px system-ui,sans-serif;fill:var(--d)}.t{font-size:16px;font-weight:600;fill:var(--i)}
.l{stroke:var(--l)}.c{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}.a{fill:var(--c);opacity:.13}
.h{stroke:var(--b);stroke-width:1.5;stroke-dasharray:6 4}.b{fill:var(--b)}.k{stroke:var(--b);stroke-width:1.5}
</style>
`

// svg writes the picture. It references no other file, and names are escaped as text.
func (p *picture) svg(w io.Writer) error {
	if len(p.Samples) < 2 {
		return fmt.Errorf("draw the run: %d memory samples are not enough", len(p.Samples))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", wide, high, escape(p.label()))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="g" width="%d" height="%d" rx="8"/>`+"\n", wide, high)
	fmt.Fprintf(&b, `<text class="t" x="%d" y="30">%s</text>`+"\n", left, escape(p.Title))
	p.axes(&b)
	p.curve(&b)
	p.marks(&b)
	for i, line := range p.Told {
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", left, high-bottom+48+i*20, escape(line))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *picture) label() string {
	return fmt.Sprintf("Memory available on the node over time, the threshold at %dMi, and the kill of %s", threshold/mib, p.Victim)
}

// ceiling returns the upper end of the axis: the next hundred MiB above all samples.
func (p *picture) ceiling() int64 {
	top := int64(2 * threshold)
	for _, s := range p.Samples {
		top = max(top, s.Available)
	}
	const step = 100 * mib
	return (top + step - 1) / step * step
}

func (p *picture) x(at time.Duration) float64 {
	first, last := p.Samples[0].At, p.Samples[len(p.Samples)-1].At
	return left + plotWide*float64(at-first)/float64(max(last-first, 1))
}

func (p *picture) y(bytes int64) float64 {
	return top + plotHigh*(1-float64(bytes)/float64(p.ceiling()))
}

func (p *picture) axes(b *strings.Builder) {
	const hundred = 100 * mib
	step := hundred * ((p.ceiling()/hundred + 4) / 5)
	for v := int64(0); v <= p.ceiling(); v += step {
		fmt.Fprintf(b, `<path class="l" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%dMi</text>`+"\n",
			left, p.y(v), wide-right, left-8, p.y(v)+4, v/mib)
	}
	first, last := p.Samples[0].At, p.Samples[len(p.Samples)-1].At
	for i := range 5 {
		at := first + (last-first)*time.Duration(i)/4
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="%s">%.0f s</text>`+"\n", p.x(at), high-bottom+20,
			[...]string{"start", "middle", "middle", "middle", "end"}[i], (at - first).Seconds())
	}
}

// curve draws the available memory. It draws the lowest of the samples that share a point.
func (p *picture) curve(b *strings.Builder) {
	var points []string
	each := (len(p.Samples) + most - 1) / most
	for some := range slices.Chunk(p.Samples, each) {
		lowest := slices.MinFunc(some, func(x, y pictured) int { return cmp.Compare(x.Available, y.Available) })
		points = append(points, fmt.Sprintf("%.1f %.1f", p.x(lowest.At), p.y(lowest.Available)))
	}
	line := strings.Join(points, "L")
	fmt.Fprintf(b, `<path class="a" d="M%d %.1fL%sV%.1fZ"/>`+"\n", left, p.y(0), line, p.y(0))
	fmt.Fprintf(b, `<path class="c" d="M%s"/>`+"\n", line)
}

// marks draws the threshold and the kill.
func (p *picture) marks(b *strings.Builder) {
	y := p.y(threshold)
	fmt.Fprintf(b, `<path class="h" d="M%d %.1fH%d"/><text class="b" x="%d" y="%.1f">threshold %dMi</text>`+"\n",
		left, y, wide-right, left+6, y-6, threshold/mib)
	if p.Killed == 0 {
		return
	}
	x, anchor, at := p.x(p.Killed), "end", -8.0
	if x < wide/2 {
		anchor, at = "start", 8
	}
	fmt.Fprintf(b, `<path class="k" d="M%.1f %dV%d"/><circle class="b" cx="%.1f" cy="%d" r="5"/>`+"\n", x, top, high-bottom, x, top)
	fmt.Fprintf(b, `<text class="b" x="%.1f" y="%d" text-anchor="%s">%s killed</text>`+"\n", x+at, top+5, anchor, escape(p.Victim))
}

// escape escapes a text for markup.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}
