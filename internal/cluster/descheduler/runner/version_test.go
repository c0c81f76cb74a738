package runner

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PO8: up to three minor versions from the API server's nothing is said. More are a warning, as is a version that is not known; the cycle is
// made all the same.
func TestTheServersVersion(t *testing.T) {
	for answer, want := range map[string]string{
		release(builtWith - 4):                    fmt.Sprintf("the API server is v1.%d.2, and this is built for 1.%d: more than 3", builtWith-4, builtWith),
		release(builtWith - 3):                    "",
		release(builtWith):                        "",
		release(builtWith + 3):                    "",
		release(builtWith + 4):                    fmt.Sprintf("the API server is v1.%d.2, and this is built for 1.%d: more than 3", builtWith+4, builtWith),
		fmt.Sprintf("v1.%d.2-eks-1+x", builtWith): "",
		fmt.Sprintf("v1.%d.2+k3s1", builtWith+4):  "more than 3 minor versions apart",
		"main":                                    "the API server's version",
		"":                                        "the API server's version",
	} {
		a := scripted(t, pod("p", "n1"))
		a.raw["/version"] = fmt.Sprintf(`{"gitVersion":%q}`, answer)
		_, log, err := run(t, a, old())
		if err != nil || len(a.asked()) != 1 {
			t.Errorf("%q: %v, asked for %v", answer, err, a.asked())
		}
		if warned := strings.Contains(log, "level=WARN"); warned != (want != "") || !strings.Contains(log, want) {
			t.Errorf("%q: want %q in the log\n%s", answer, want, log)
		}
	}
	a := scripted(t, pod("p", "n1"))
	delete(a.raw, "/version")
	a.lists["version"] = metav1.Status{Status: "Failure", Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}
	if _, log, err := run(t, a, old()); err != nil || len(a.asked()) != 1 || !strings.Contains(log, "ask for the API server's version: ") {
		t.Errorf("%v: %s", err, log)
	}
}

func release(minor int) string { return fmt.Sprintf("v1.%d.2", minor) }

// What this counts as its version is that of the libraries in go.mod.
func TestBuiltWithIsTheLibraries(t *testing.T) {
	text, err := os.ReadFile("../../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\n\tk8s.io/client-go v0.%d.", builtWith); !strings.Contains(string(text), want) {
		t.Errorf("go.mod has no %q: set builtWith to the minor version that is there", strings.TrimSpace(want))
	}
}
