package output

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// encoded is text by way of -o yaml and a reader of it.
func encoded(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	key := text[:min(len(text), 100)] // one of more than 1,024 bytes is no key to YAML; ours are names
	if err := AsYAML.Encode(&out, map[string]string{key: text}, true); err != nil {
		t.Fatalf("%+.200q: %v", text, err)
	}
	var back map[string]string
	if err := yaml.Unmarshal([]byte(out.String()), &back); err != nil {
		t.Fatalf("%+.200q: %v in %.200q", text, err, out.String())
	}
	is, ok := back[strings.ToValidUTF8(key, "\ufffd")]
	if !ok && utf8.ValidString(key) {
		t.Fatalf("%+.200q: nothing of that key in %.200q", text, out.String())
	}
	return is
}

// Whatever a text holds, output comes, and holds it.
func TestYAMLOfAnyText(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r < 0x20000; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		all.WriteRune(r)
		if r < 0x300 || r > 0x2000 && r < 0x2100 || r > 0xfe00 && r < 0x10010 {
			if text := "a" + string(r) + "b"; encoded(t, text) != text {
				t.Errorf("%U: %+q", r, encoded(t, text))
			}
		}
	}
	if text := all.String(); encoded(t, text) != text {
		t.Error("all at once are others")
	}
}

func FuzzYAML(f *testing.F) {
	for _, text := range []string{"", "a", "\x7f\u0080\u0085\u009f", "\ufffe\uffff\ufeff", `\u007f\`, "\x00\x1b\xff", "\U0010ffff\u2028", "- a: |\n  b\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if want := strings.ToValidUTF8(text, "\ufffd"); utf8.ValidString(text) && encoded(t, text) != want {
			t.Errorf("%+q became %+q", want, encoded(t, text))
		}
		encoded(t, text)
	})
}
