// Package table lays out tables: as wide as their texts are, or so that they fit a terminal.
package table

import (
	"slices"
	"strings"
	"unicode/utf8"

	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
)

// Column of a table.
type Column struct {
	Name  string
	Right bool // numbers
	Wide  bool // only where more is wanted than fits
	Cut   bool // a text that is too long ends with …
	Fold  bool // a text that is too long goes on below itself
	// Drop says which columns go first where there is no room for all; 0: never.
	Drop int
}

// Table is columns, and rows of as many cells.
type Table struct {
	Columns []Column
	Rows    [][]terminal.Span
}

// gap between two columns, and the least that is left of one that is cut, and of one that is
// folded.
const (
	gap       = 2
	leastCut  = 12
	leastFold = 18
)

// Add adds a row of cells. An empty one is a dash.
func (t *Table) Add(cells ...string) {
	row := make([]terminal.Span, len(cells))
	for i, text := range cells {
		row[i] = terminal.Span{Text: text}
	}
	t.Rows = append(t.Rows, row)
}

// Lines lays the table out. width 0: as wide as it is. wide: with the columns that only then are
// there.
func (t *Table) Lines(width int, wide bool) []terminal.Line {
	cells := t.cells()
	shown := t.fit(cells, width, wide)
	widths := t.widths(cells, shown, width)
	head := make([]terminal.Span, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = terminal.Span{Text: c.Name, Style: terminal.Bold}
	}
	out := t.row(nil, head, shown, widths)
	for _, row := range cells {
		out = t.row(out, row, shown, widths)
	}
	return out
}

// Print writes the table as wide as a screen is.
func (t *Table) Print(to *terminal.Screen, wide bool) error {
	width := to.Width()
	if wide {
		width = 0
	}
	return to.Print(t.Lines(width, wide)...)
}

// cells are the texts as they are shown, one line each.
func (t *Table) cells() [][]terminal.Span {
	out := make([][]terminal.Span, len(t.Rows))
	for i, row := range t.Rows {
		out[i] = make([]terminal.Span, len(t.Columns))
		for j := range out[i] {
			text := "-"
			if j < len(row) && row[j].Text != "" {
				text, out[i][j].Style = printable.Text(strings.Join(strings.Fields(row[j].Text), " ")),
					row[j].Style
			}
			out[i][j].Text = text
		}
	}
	return out
}

// full is how wide a column is by its texts.
func (t *Table) full(cells [][]terminal.Span, at int) int {
	w := utf8.RuneCountInString(t.Columns[at].Name)
	for _, row := range cells {
		w = max(w, utf8.RuneCountInString(row[at].Text))
	}
	return w
}

// smallest is how narrow a column may be.
func (t *Table) smallest(cells [][]terminal.Span, at int) int {
	full := t.full(cells, at)
	name := utf8.RuneCountInString(t.Columns[at].Name)
	switch c := &t.Columns[at]; {
	case c.Cut:
		return min(full, max(leastCut, name))
	case c.Fold:
		return min(full, max(leastFold, name))
	}
	return full
}

// fit finds the columns that there is room for.
func (t *Table) fit(cells [][]terminal.Span, width int, wide bool) (shown []int) {
	for i := range t.Columns {
		if wide || !t.Columns[i].Wide {
			shown = append(shown, i)
		}
	}
	for width > 0 {
		needed, next := -gap, -1
		for at, i := range shown {
			needed += t.smallest(cells, i) + gap
			if drop := t.Columns[i].Drop; drop > 0 && (next < 0 || drop < t.Columns[shown[next]].Drop) {
				next = at
			}
		}
		if needed <= width || next < 0 {
			break
		}
		shown = slices.Delete(shown, next, next+1)
	}
	return shown
}

// widths of the columns that are shown: what is too much is taken from the widest that may be cut
// or folded.
func (t *Table) widths(cells [][]terminal.Span, shown []int, width int) []int {
	out := make([]int, len(shown))
	total := -gap
	for at, i := range shown {
		out[at] = t.full(cells, i)
		total += out[at] + gap
	}
	for width > 0 && total > width {
		widest := -1
		for at, i := range shown {
			if out[at] > t.smallest(cells, i) && (widest < 0 || out[at] > out[widest]) {
				widest = at
			}
		}
		if widest < 0 {
			break
		}
		out[widest]--
		total--
	}
	return out
}

// row adds a row's lines: more than one where a cell is folded.
func (t *Table) row(out []terminal.Line, cells []terminal.Span, shown,
	widths []int) []terminal.Line {
	texts := make([][]string, len(shown))
	height := 1
	for at, i := range shown {
		switch {
		case t.Columns[i].Fold:
			texts[at] = Fold(cells[i].Text, widths[at])
		default:
			texts[at] = []string{Cut(cells[i].Text, widths[at])}
		}
		height = max(height, len(texts[at]))
	}
	for y := range height {
		var line terminal.Line
		for at, i := range shown {
			text := ""
			if y < len(texts[at]) {
				text = texts[at][y]
			}
			pad := strings.Repeat(" ", max(0, widths[at]-utf8.RuneCountInString(text)))
			before, after := "", pad
			if t.Columns[i].Right {
				before, after = pad, ""
			}
			if at < len(shown)-1 {
				after += strings.Repeat(" ", gap)
			}
			line = append(line, terminal.Span{Text: before},
				terminal.Span{Text: text, Style: cells[i].Style}, terminal.Span{Text: after})
		}
		out = append(out, trimmed(line))
	}
	return out
}

// trimmed is a line without the white space at its end.
func trimmed(l terminal.Line) terminal.Line {
	for len(l) > 0 {
		last := &l[len(l)-1]
		if last.Text = strings.TrimRight(last.Text, " "); last.Text != "" {
			break
		}
		l = l[:len(l)-1]
	}
	return l
}

// Cut is a text that ends with … where it is wider than that.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

// Fold is a text in lines of that width, broken at spaces where there are any.
func Fold(text string, width int) (lines []string) {
	rest := []rune(text)
	for width > 0 && len(rest) > width {
		at := width
		for i := width; i > 0; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}
