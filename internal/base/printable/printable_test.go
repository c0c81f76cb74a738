package printable

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

var hostile = map[string]string{
	"plain": "plain", "é ü 日本": "é ü 日本", "": "", "a\\b": "a\\b",
	"\x1b[2J":          `\u001b[2J`,
	"\u009b2J":         `\u009b2J`, // the same in one character
	"\x9b2J":           `\x9b2J`,
	"a\rb\x08\x7f\x00": `a\u000db\u0008\u007f\u0000`,
	"a\v\fb":           `a\u000b\u000cb`,
	"\u202egnp\u2066":  `\u202egnp\u2066`, // reads backwards
	"\u2028\u2029":     `\u2028\u2029`,
	"\U000e0001":       `\udb40\udc01`, // a tag
	"\ufffd":           "\ufffd",
}

// No text from outside moves a terminal's cursor, hides what is before it or turns the direction of writing; others stay as they are.
func TestText(t *testing.T) {
	for text, want := range hostile {
		if got := Text(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := Text("a\tb\nc"); got != `a\u0009b\u000ac` {
		t.Errorf("in a cell: %s", got)
	}
}

// An output keeps its lines and columns, and JSON is what it was.
func TestWriter(t *testing.T) {
	for text, want := range hostile {
		var out bytes.Buffer
		if n, err := Writer(&out).Write([]byte("x\t" + text + "\n")); n != len(text)+3 || err != nil || out.String() != "x\t"+want+"\n" {
			t.Errorf("%q: wrote %d, %v: %q", text, n, err, out.String())
		}
		valid := strings.ToValidUTF8(text, "\ufffd")
		out.Reset()
		var got string
		if err := json.NewEncoder(Writer(&out)).Encode(valid); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != valid {
			t.Errorf("%q: %s is %q, %v", valid, out.Bytes(), got, err)
		}
	}
}

// Whatever the text, a terminal gets nothing to obey.
func FuzzWriter(f *testing.F) {
	for text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out bytes.Buffer
		_, _ = Writer(&out).Write([]byte(text))
		if bad := strings.ContainsFunc(out.String(), func(r rune) bool {
			return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
		}); bad || strings.ToValidUTF8(out.String(), "") != out.String() {
			t.Errorf("%q: %q", text, out.String())
		}
	})
}
