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
	"\u009b2J":         `\u009b2J`, // the same as one character
	"\x9b2J":           `\x9b2J`,
	"a\rb\x08\x7f\x00": `a\u000db\u0008\u007f\u0000`,
	"a\v\fb":           `a\u000b\u000cb`,
	"\u202egnp\u2066":  `\u202egnp\u2066`, // reads backwards
	"\u2028\u2029":     `\u2028\u2029`,
	"\U000e0001":       `\udb40\udc01`, // a tag
	"\ufffd":           "\ufffd",
}

// Text keeps terminals from moving the cursor, hiding text or changing the direction of writing.
// Other text is unchanged.
func TestText(t *testing.T) {
	for text, want := range hostile {
		if got := Text(text); got != want {
			t.Errorf("Text(%q) = %s, want %s", text, got, want)
		}
	}
	if got := Text("a\tb\nc"); got != `a\u0009b\u000ac` {
		t.Errorf("Text with tab and line end = %s, want escapes", got)
	}
}

// An output keeps its lines and columns, and JSON its meaning.
func TestWriter(t *testing.T) {
	for text, want := range hostile {
		var out bytes.Buffer
		if n, err := Writer(&out).Write([]byte("x\t" + text + "\n")); n != len(text)+3 || err != nil || out.String() != "x\t"+want+"\n" {
			t.Errorf("Write of %q = %d, %v with output %q", text, n, err, out.String())
		}
		valid := strings.ToValidUTF8(text, "\ufffd")
		out.Reset()
		var got string
		if err := json.NewEncoder(Writer(&out)).Encode(valid); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != valid {
			t.Errorf("JSON of %q is %s, decoded %q, %v", valid, out.Bytes(), got, err)
		}
	}
}

// For any text, a terminal gets no control character.
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
			t.Errorf("output of %q has control characters: %q", text, out.String())
		}
	})
}
