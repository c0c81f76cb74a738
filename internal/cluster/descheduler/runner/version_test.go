package runner

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"jettison/internal/cluster/kubeclient"
)

// PO8: up to three minor versions of difference to the API server are supported. More, or an
// unknown version, causes a warning; the cycle still runs.
func TestVersionSkew(t *testing.T) {
	for answer, want := range map[string]string{
		release(clientMinorVersion - 4):                    fmt.Sprintf("API server version v1.%d.2 differs from client version 1.%d by more than 3", clientMinorVersion-4, clientMinorVersion),
		release(clientMinorVersion - 3):                    "",
		release(clientMinorVersion):                        "",
		release(clientMinorVersion + 3):                    "",
		release(clientMinorVersion + 4):                    fmt.Sprintf("API server version v1.%d.2 differs from client version 1.%d by more than 3", clientMinorVersion+4, clientMinorVersion),
		fmt.Sprintf("v1.%d.2-eks-1+x", clientMinorVersion): "",
		fmt.Sprintf("v1.%d.2+k3s1", clientMinorVersion+4):  "by more than 3 minor versions",
		"main": "parse API server version",
		"":     "parse API server version",
	} {
		a := apiWithPods(t, pod("p", "n1"))
		a.raw["/version"] = fmt.Sprintf(`{"gitVersion":%q}`, answer)
		_, log, err := run(t, a, lifeTimePolicy())
		if err != nil || len(a.requestedPods()) != 1 {
			t.Errorf("version %q: Run() = %v, evictions requested for %v, want one", answer, err, a.requestedPods())
		}
		if warned := strings.Contains(log, "level=WARN"); warned != (want != "") || !strings.Contains(log, want) {
			t.Errorf("version %q: log lacks %q, or has an unwanted warning:\n%s", answer, want, log)
		}
	}
	a := apiWithPods(t, pod("p", "n1"))
	delete(a.raw, "/version")
	a.lists["version"] = metav1.Status{Status: "Failure", Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}
	if _, log, err := run(t, a, lifeTimePolicy()); err != nil || len(a.requestedPods()) != 1 || !strings.Contains(log, "get API server version: ") {
		t.Errorf("Run() = %v, want a warning about the version and one eviction: %s", err, log)
	}
}

func release(minor int) string { return fmt.Sprintf("v1.%d.2", minor) }

func TestClientMinorVersionMatchesGoMod(t *testing.T) {
	text, err := os.ReadFile("../../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\n\tk8s.io/client-go v0.%d.", clientMinorVersion); !strings.Contains(string(text), want) {
		t.Errorf("go.mod has no %q: set builtWith to the minor version that is there", strings.TrimSpace(want))
	}
}

// An API server that does not answer ends the program with its address and the cause.
func TestUnreachableAPIEndsRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	var log strings.Builder
	config := &rest.Config{Host: "http://" + l.Addr().String()}
	d := &descheduler{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	d.o.Reach = kubeclient.NewReach(config, d.o.Log)
	query, err := kubeclient.New(config, "query", requestTimeout)
	if err != nil {
		t.Fatal(err)
	}
	err = d.awaitAPI(t.Context(), query, time.Second)
	if err == nil || !strings.Contains(err.Error(), config.Host+" is unreachable: ") {
		t.Errorf("awaitAPI() = %v, want an error with %s", err, config.Host)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 {
		t.Errorf("log = %q, want one line", text)
	}
}
