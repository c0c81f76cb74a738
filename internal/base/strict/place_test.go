package strict

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestField(t *testing.T) {
	for pointer, want := range map[jsontext.Pointer]string{
		"":                       "",
		"/summary/pods/3/memory": "summary.pods[3].memory",
		"/0/a":                   "[0].a",
		"/a/b":                   "a.b",
		"/a.b/c":                 `"a.b".c`,
		"/a\nb":                  `"a\nb"`,
		jsontext.Pointer("").AppendToken(strings.Repeat("x", 100)): `"` + strings.Repeat("x", MaxKey) + `"`,
	} {
		if got := Field(pointer); got != want {
			t.Errorf("Field(%q) = %s, want %s", pointer, got, want)
		}
	}
}

func TestKind(t *testing.T) {
	for kind, want := range map[jsontext.Kind]string{'n': "null", 't': "true or false", '"': "text", '0': "a number", '{': "an object", ']': "a list", 0: "another kind"} {
		if got := Kind(kind); got != want {
			t.Errorf("Kind(%v) = %s, want %s", kind, got, want)
		}
	}
}
