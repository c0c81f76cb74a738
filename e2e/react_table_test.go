package e2e

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"jettison/e2e/guestapi"
)

// table is printed twice: in columns for the reader of the run, and as markdown for
// docs/build/performance.md.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string
	began time.Time
}

func newTable(title string, head ...string) *table {
	return &table{title: title, head: head, began: time.Now()}
}

func (t *table) row(cells ...any) {
	var row []string
	for _, c := range cells {
		row = append(row, fmt.Sprint(c))
	}
	t.rows = append(t.rows, row)
}

// note adds a line below the table, once.
func (t *table) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

func (t *table) print() { fmt.Print(t.text() + t.markdown()) }

// text returns the table in columns, the first aligned left, the others right.
func (t *table) text() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s (took %.0f s)\n", t.title, time.Since(t.began).Seconds())
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				fmt.Fprint(&b, c, pad)
			} else {
				fmt.Fprint(&b, "  ", pad, c)
			}
		}
		b.WriteString("\n")
	}
	for _, n := range t.notes {
		fmt.Fprintln(&b, "  "+n)
	}
	return b.String()
}

func (t *table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintln(&b, "| "+strings.Join(cells, " | ")+" |") }
	fmt.Fprintf(&b, "\n%s:\n\n", t.title)
	line(t.head)
	rule := []string{"---"}
	for range t.head[1:] {
		rule = append(rule, "---:")
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	b.WriteString("\n")
	for _, n := range t.notes {
		fmt.Fprintln(&b, "- "+n)
	}
	return b.String()
}

// ms formats nanoseconds as milliseconds.
func ms(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/1e6) }

// spread returns p50, p90, p99, max and the number of the times, as cells of a table, or a dash
// each without times.
func spread(times []time.Duration) []any {
	if len(times) == 0 {
		return []any{"-", "-", "-", "-", 0}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) string { return ms(int64(sorted[rank(q, len(sorted))])) }
	return []any{at(0.5), at(0.9), at(0.99), at(1), len(times)}
}

// rank returns the place of a quantile among n sorted values: the smallest that at least so many of
// them do not exceed.
func rank(q float64, n int) int { return min(max(int(math.Ceil(q*float64(n)))-1, 0), n-1) }

// sampledTable is a table of trials with the sampler's own figures of its error.
type sampledTable struct {
	*table
	gap, gapP99, cost, off int64 // worst of all trials
}

func newSampledTable(title string, head ...string) sampledTable {
	return sampledTable{table: newTable(title, head...)}
}

func (t *sampledTable) sampled(s guestapi.Sample) {
	t.gap, t.gapP99, t.cost, t.off = max(t.gap, s.MaxGap), max(t.gapP99, s.GapP99), max(t.cost, s.MeanCost), max(t.off, s.MaxOff)
	for _, text := range s.Refused {
		t.note("refused to the sampler: %s", text)
	}
}

func (t *sampledTable) print() {
	t.note("sampled each 1 ms; the worst of all trials: %s ms between two samples, p99 %s ms, %d µs of the CPU a sample (mean), estimates of the level off by up to %d KiB before they were checked",
		ms(t.gap), ms(t.gapP99), t.cost/1000, t.off>>10)
	t.table.print()
}

// faults counts failures by name.
type faults map[string]int

func (f faults) add(texts []string) {
	for _, t := range texts {
		f[t]++
	}
}

func (f faults) String() string {
	if len(f) == 0 {
		return "0"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		words = append(words, fmt.Sprintf("%d %s", f[name], name))
	}
	return strings.Join(words, ", ")
}

func TestTables(t *testing.T) {
	table := newTable("a title", "what", "p50", "µs")
	table.row("one", "1.0", 12345)
	table.row("three", "10.5", "-")
	table.note("a note")
	table.note("a note")
	want := "what    p50     µs\none     1.0  12345\nthree  10.5      -\n  a note\n"
	if _, got, _ := strings.Cut(table.text(), " s)\n"); got != want {
		t.Errorf("table in columns: got\n%swant\n%s", got, want)
	}
	want = "\na title:\n\n| what | p50 | µs |\n| --- | ---: | ---: |\n| one | 1.0 | 12345 |\n| three | 10.5 | - |\n\n- a note\n"
	if got := table.markdown(); got != want {
		t.Errorf("table in markdown: got\n%swant\n%s", got, want)
	}
}

func TestSpread(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i)*time.Millisecond)
	}
	for _, c := range []struct {
		n    int
		want string
	}{{0, "[- - - - 0]"}, {1, "[100.0 100.0 100.0 100.0 1]"}, {2, "[99.0 100.0 100.0 100.0 2]"}, {100, "[50.0 90.0 99.0 100.0 100]"}} {
		if got := fmt.Sprint(spread(times[:c.n])); got != c.want {
			t.Errorf("spread of %d times = %s, want %s", c.n, got, c.want)
		}
	}
}
