package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// Logs of client-go, for example about the election, have the format of the program's log. The
// program runs as a process of its own: client-go's goroutines, which cannot be waited for, read
// klog's logger, which is set without a lock.
func TestDescheduleLogFormat(t *testing.T) {
	if conf := os.Getenv("JETTISON_TEST_KUBECONFIG"); conf != "" {
		code := execute(t.Context(), []string{"deschedule", "--policy", "../../internal/cluster/descheduler/planner/testdata/policy.yaml", "--kubeconfig", conf, "--log-format=json"},
			nil, os.Stdout, os.Stderr)
		klog.Info("log line of client-go")
		os.Exit(code)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	}))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "conf")
	text := `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "` + api.URL + `"}}], contexts: [{name: c, context: {cluster: c}}],
current-context: c}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDescheduleLogFormat$")
	program.Env, program.Stderr = append(os.Environ(), "JETTISON_TEST_KUBECONFIG="+path), &stderr
	if err := program.Run(); program.ProcessState.ExitCode() != exitFailed {
		t.Errorf("deschedule ended with %v, want exit code %d: %s", err, exitFailed, stderr.String())
	}
	if !strings.Contains(stderr.String(), `"msg":"log line of client-go"`) {
		t.Errorf("log of client-go is missing in %s", stderr.String())
	}
}

func TestDeschedule(t *testing.T) {
	const dir = "../../internal/cluster/descheduler/planner/testdata/"
	for _, c := range []struct {
		args   []string
		stdin  string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"--policy", dir + "policy.yaml", "--from", dir + "objects.yaml", "--now", "2026-11-23T12:00:00Z", "-o", "json"}, "", exitOK,
			`{"evictions":[{"namespace":"shop","name":"web-7","uid":"u-7","node":"n1","profile":"default","strategy":"LowNodeUtilization",`, ""},
		{[]string{"--from", "x"}, "", exitUsage, "", "--policy is required"},
		{[]string{"--policy", "x", "--now", "2026-11-23T12:00:00Z"}, "", exitUsage, "", "require --from"},
		{[]string{"--policy", "x"}, "", exitUsage, "", "policy: open x: no such file"},
		{[]string{"--policy", dir + "policy.yaml", "--kubeconfig", "/nowhere"}, "", exitFailed, "", "configure the API client: stat /nowhere: no such file"},
		{[]string{"--policy", "x", "--from", "y", "--dry-run"}, "", exitUsage, "", "--dry-run applies to a cluster and cannot be combined with --from"},
		{[]string{"--policy", dir + "policy.yaml", "--leader-elect"}, "", exitUsage, "", "--leader-elect requires --descheduling-interval"},
		{[]string{"--policy", dir + "policy.yaml", "--descheduling-interval", "-1s"}, "", exitUsage, "", "--descheduling-interval -1s"},
		{[]string{"--policy", dir + "policy.yaml", "--descheduling-interval", "1m", "--leader-elect", "--leader-elect-renew-deadline", "3m"}, "", exitUsage,
			"", "renew deadline 3m0s: want more than 0 and less than the lease duration"},
		{[]string{"--policy", "-", "--from", "-"}, "", exitUsage, "", "only one file can be standard input"},
		{[]string{"--policy", dir + "policy.yaml", "--from", dir + "objects.yaml", "--now", "noon"}, "", exitUsage, "", `--now "noon"`},
		{[]string{"--policy", dir + "policy.yaml", "--from", dir + "objects.yaml", "-o", "xml"}, "", exitUsage, "", `--output "xml"`},
		{[]string{"--policy", "-", "--from", dir + "objects.yaml"}, "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofile: []\n",
			exitUsage, "", `policy stdin:3: unknown field "profile": did you mean "profiles"?`},
		{[]string{"--policy", dir + "policy.yaml", "--from", dir + "none.json"}, "", exitFailed, "", "none.json: no such file"},
		{[]string{"migrate", "--policy", "-"}, "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nstrategies:\n  RemoveDuplicates: {enabled: true}\n",
			exitOK, "balance:\n      enabled:\n      - RemoveDuplicates\n", ""},
		{[]string{"migrate"}, "", exitUsage, "", "--policy is required"},
		{[]string{"--policy-config-file", "x", "--dry-run"}, "", exitUsage, "", "unknown flag: --policy-config-file"},
		{[]string{"--v", "4"}, "", exitUsage, "", "unknown flag: --v"},
		{[]string{"migrat", "--policy", "x"}, "", exitUsage, "", `unknown command "deschedule migrat": did you mean "migrate"?`},
	} {
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), append([]string{"deschedule"}, c.args...), strings.NewReader(c.stdin), &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("deschedule %v: exit code %d, want %d\n%s\n%s", c.args, code, c.code, stdout.String(), stderr.String())
		}
	}
}

// A plan can be cancelled while it waits for its input.
func TestPlanIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hangs, end := io.Pipe()
	t.Cleanup(func() { _ = end.Close() })
	var stdout, stderr bytes.Buffer
	code := execute(ctx, []string{"deschedule", "--policy", "-", "--from", "objects.yaml"}, hangs, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "deschedule: interrupted") {
		t.Errorf("exit code of a cancelled plan = %d, want %d: %s", code, exitFailed, stderr.String())
	}
}
