package output

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// encoded returns a text after encoding to YAML and decoding.
func encoded(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	key := text[:min(len(text), 100)] // YAML allows keys of at most 1,024 bytes
	if err := AsYAML.Encode(&out, map[string]string{key: text}, true); err != nil {
		t.Fatalf("encode text %+.200q as YAML: %v", text, err)
	}
	var back map[string]string
	if err := yaml.Unmarshal([]byte(out.String()), &back); err != nil {
		t.Fatalf("decode %+.200q from YAML: %v in %.200q", text, err, out.String())
	}
	value, ok := back[strings.ToValidUTF8(key, "\ufffd")]
	if !ok && utf8.ValidString(key) {
		t.Fatalf("key of %+.200q missing in %.200q", text, out.String())
	}
	return value
}

// Any text can be encoded, and is unchanged after decoding.
func TestYAMLOfAnyText(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r < 0x20000; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		all.WriteRune(r)
		if r < 0x300 || r > 0x2000 && r < 0x2100 || r > 0xfe00 && r < 0x10010 {
			if text := "a" + string(r) + "b"; encoded(t, text) != text {
				t.Errorf("decoded text with %U = %+q, want it unchanged", r, encoded(t, text))
			}
		}
	}
	if text := all.String(); encoded(t, text) != text {
		t.Error("text with all characters changed")
	}
}

func FuzzYAML(f *testing.F) {
	for _, text := range []string{"", "a", "\x7f\u0080\u0085\u009f", "\ufffe\uffff\ufeff", `\u007f\`, "\x00\x1b\xff", "\U0010ffff\u2028", "- a: |\n  b\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if want := strings.ToValidUTF8(text, "\ufffd"); utf8.ValidString(text) && encoded(t, text) != want {
			t.Errorf("decoded text of %+q = %+q, want it unchanged", want, encoded(t, text))
		}
		encoded(t, text)
	})
}
