package nearest

import (
	"slices"
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	known := []string{"evictionSoft", "evictionHard", "kind", "gc", "disk", "desk", "stats", "status"}
	for name, want := range map[string]string{
		"evictionHrad": "evictionHard", "EVICTIONSOFT": "evictionSoft", "kinds": "kind", "cg": "", "GC": "gc", "dusk": "desk",
		"evic": "evictionHard", "statu": "status", "STAT": "stats", "statsu": "stats", "s": "", "k": "",
		"somethingElse": "", "": "", strings.Repeat("evictionHard", 6): "",
	} {
		for range 2 { // in any order
			slices.Reverse(known)
			if got := Name(name, slices.Values(known)); got != want {
				t.Errorf("Name(%q) = %q, want %q", name, got, want)
			}
		}
	}
}

func TestQuestion(t *testing.T) {
	known := slices.Values([]string{"kind"})
	if got := Question("knd", known); got != `: did you mean "kind"?` {
		t.Errorf("Question(knd) = %q, want kind", got)
	}
	if got := Question("apiVersion", known); got != "" {
		t.Errorf("Question(apiVersion) = %q, want empty", got)
	}
}
