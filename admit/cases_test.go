package admit

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// Every case of the kubelet's own tests is a heading of a script. docs/reference/kubelet-parity.md
// lists the differences with reasons.
func TestEveryCaseIsAScript(t *testing.T) {
	named := map[string]bool{}
	for _, file := range []string{"D21", "J", "K"} {
		text, err := os.ReadFile("testdata/cases/" + file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^# ([A-M]\d\d)\b`).FindAllStringSubmatch(string(text), -1) {
			named[m[1]] = true
		}
	}
	want := []string{"D21"}
	for i := 1; i <= 12; i++ {
		want = append(want, fmt.Sprintf("J%02d", i))
	}
	for i := 1; i <= 6; i++ {
		want = append(want, fmt.Sprintf("K%02d", i))
	}
	for _, id := range want {
		if !named[id] {
			t.Errorf("no script in testdata contains case %s", id)
		}
	}
}
