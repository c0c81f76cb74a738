package table

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"jettison/internal/base/terminal"
)

// A table fits its width: first columns are dropped, then texts are shortened or folded. Without a
// width it is unchanged.
func TestTableFits(t *testing.T) {
	tab := &Table{Columns: []Column{
		{Name: "POD", Cut: true}, {Name: "QOS", Drop: 1}, {Name: "USE", Right: true}, {Name: "WHY", Fold: true}, {Name: "UID", Wide: true},
	}}
	tab.Add("default/a-pod-with-a-rather-long-name", "BestEffort", "800Mi", "uses 800Mi, over its request of 0", "u1")
	tab.Add("ns/web", "", "4Mi", "x\ty\x1b[2J", "u2")
	for _, c := range []struct {
		width int
		wide  bool
		want  string
	}{
		{0, true, `POD                                    QOS           USE  WHY                                UID
default/a-pod-with-a-rather-long-name  BestEffort  800Mi  uses 800Mi, over its request of 0  u1
ns/web                                 -             4Mi  x y\u001b[2J                       u2
`},
		{60, false, `POD                  QOS           USE  WHY
default/a-pod-with…  BestEffort  800Mi  uses 800Mi, over its
                                        request of 0
ns/web               -             4Mi  x y\u001b[2J
`},
		{40, false, `POD              USE  WHY
default/a-po…  800Mi  uses 800Mi, over
                      its request of 0
ns/web           4Mi  x y\u001b[2J
`},
	} {
		var out bytes.Buffer
		if err := terminal.Fixed(&out, c.width).Print(tab.Lines(c.width, c.wide)...); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("table of width %d\n%s\nwant\n%s", c.width, out.String(), c.want)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); c.width > 0 && n > c.width {
				t.Errorf("table of width %d has a line of %d: %q", c.width, n, line)
			}
		}
	}
}

func TestFold(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "one": "one", "one two": "one two", "one two three": "one two|three", "abcdefghijkl": "abcdefgh|ijkl", "one  two   three": "one  two|three",
	} {
		if got := strings.Join(Fold(text, 8), "|"); got != want {
			t.Errorf("Fold(%q) = %q, want %q", text, got, want)
		}
	}
}
