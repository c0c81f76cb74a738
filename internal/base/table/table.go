// Package table lays out tables in their natural width, or so that they fit a terminal.
package table

import (
	"slices"
	"strings"
	"unicode/utf8"

	"jettison/internal/base/printable"
	"jettison/internal/base/terminal"
)

// Column describes a column of a table.
type Column struct {
	Name  string
	Right bool // right-aligned, for numbers
	Wide  bool // only in a wide table
	Cut   bool // a too long text is shortened with …
	Fold  bool // a too long text continues on the next line
	// Drop is the order in which columns are dropped if not all fit; 0: never.
	Drop int
}

// Table has columns, and rows with a cell for each column.
type Table struct {
	Columns []Column
	Rows    [][]terminal.Span
}

// gap is the space between two columns; minCut and minFold are the least widths of a shortened and
// of a folded column.
const (
	gap     = 2
	minCut  = 12
	minFold = 18
)

// Add adds a row of cells. An empty cell becomes a dash.
func (t *Table) Add(cells ...string) {
	row := make([]terminal.Span, len(cells))
	for i, text := range cells {
		row[i] = terminal.Span{Text: text}
	}
	t.Rows = append(t.Rows, row)
}

// Lines lays out the table. width 0: natural width. wide: with the columns that have Wide set.
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

// Print writes the table in the width of a screen.
func (t *Table) Print(to *terminal.Screen, wide bool) error {
	width := to.Width()
	if wide {
		width = 0
	}
	return to.Print(t.Lines(width, wide)...)
}

// cells returns the texts as shown, each on one line.
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

// fullWidth returns the width of a column's longest text.
func (t *Table) fullWidth(cells [][]terminal.Span, at int) int {
	w := utf8.RuneCountInString(t.Columns[at].Name)
	for _, row := range cells {
		w = max(w, utf8.RuneCountInString(row[at].Text))
	}
	return w
}

// minWidth returns the least width of a column.
func (t *Table) minWidth(cells [][]terminal.Span, at int) int {
	full := t.fullWidth(cells, at)
	name := utf8.RuneCountInString(t.Columns[at].Name)
	switch c := &t.Columns[at]; {
	case c.Cut:
		return min(full, max(minCut, name))
	case c.Fold:
		return min(full, max(minFold, name))
	}
	return full
}

// fit returns the columns that fit.
func (t *Table) fit(cells [][]terminal.Span, width int, wide bool) (shown []int) {
	for i := range t.Columns {
		if wide || !t.Columns[i].Wide {
			shown = append(shown, i)
		}
	}
	for width > 0 {
		needed, next := -gap, -1
		for at, i := range shown {
			needed += t.minWidth(cells, i) + gap
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

// widths returns the widths of the shown columns. It reduces the widest that may be cut or folded
// until all fit.
func (t *Table) widths(cells [][]terminal.Span, shown []int, width int) []int {
	out := make([]int, len(shown))
	total := -gap
	for at, i := range shown {
		out[at] = t.fullWidth(cells, i)
		total += out[at] + gap
	}
	for width > 0 && total > width {
		widest := -1
		for at, i := range shown {
			if out[at] > t.minWidth(cells, i) && (widest < 0 || out[at] > out[widest]) {
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

// row appends the lines of a row: more than one if a cell is folded.
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
		out = append(out, trimTrailing(line))
	}
	return out
}

// trimTrailing returns a line without trailing white space.
func trimTrailing(l terminal.Line) terminal.Line {
	for len(l) > 0 {
		last := &l[len(l)-1]
		if last.Text = strings.TrimRight(last.Text, " "); last.Text != "" {
			break
		}
		l = l[:len(l)-1]
	}
	return l
}

// Cut shortens a text that is wider than width, with … at its end.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

// Fold splits a text into lines of at most width, at spaces if possible.
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
