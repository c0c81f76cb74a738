package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/api"
	"jettison/internal/node/socketpath"
)

// health uses /healthz or /readyz, or the state of an agent without these paths.
func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]int
		args    []string
		code    int
		text    string
	}{
		"alive":          {map[string]int{"/healthz": 200}, nil, exitOK, "ok\n"},
		"another server": {map[string]int{"/healthz": 201}, nil, exitFailed, "malformed answer, not from an agent"},
		"a page":         {map[string]int{"/healthz": 202}, nil, exitFailed, "malformed answer, not from an agent"},
		"hanging":        {map[string]int{"/healthz": 503, "/v1/state": 200}, nil, exitFailed, "status 503: no"},
		"not ready":      {map[string]int{"/healthz": 200, "/readyz": 503}, []string{"--ready"}, exitFailed, "status 503: no"},
		"older, alive":   {map[string]int{"/healthz": 404, "/v1/state": 200}, nil, exitOK, "ok\n"},
		"older, hanging": {map[string]int{"/readyz": 404, "/v1/state": 503}, []string{"--ready"}, exitFailed, "status 503: no"},
		"limit of 0":     {nil, []string{"--timeout", "0s"}, exitUsage, "--timeout 0s"},
	} {
		dir, err := os.MkdirTemp("", "h") // socket paths are limited to 108 bytes
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "s.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch status := c.answers[r.URL.Path]; {
			case status == http.StatusCreated: // as many servers do
				fmt.Fprintln(w, "ok")
			case status == http.StatusAccepted:
				w.Header().Set(api.HeaderMinor, "1")
				fmt.Fprintln(w, "<html>")
			case status == 0 && c.answers["/healthz"] == http.StatusCreated:
				http.NotFound(w, r)
			case status != http.StatusOK:
				w.WriteHeader(status)
				fmt.Fprintln(w, `{"error": "no"}`)
			case r.URL.Path == "/healthz":
				w.Header().Set(api.HeaderMinor, "1")
				fmt.Fprintln(w, "ok")
			default:
				fmt.Fprintln(w, `{"pods": {"clients": 0}}`)
			}
		})}
		go func() { _ = server.Serve(l) }()
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"health", "--socket", path}, c.args...), &out, &errs)
		if all := out.String() + errs.String(); code != c.code || !strings.Contains(all, c.text) {
			t.Errorf("%s: exit code %d, want %d with %q: %s", name, code, c.code, c.text, all)
		}
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
}

// An invalid configuration file must not fail the probe of a running agent: the kubelet would restart the agent, and the new one would not start.
func TestHealthWithInvalidConfiguration(t *testing.T) {
	for name, text := range map[string]string{
		"a field":  "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: SOCKET\nevictionHrad: {}\n",
		"a value":  "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: SOCKET\nmaxPods: many\n",
		"its kind": "socket: SOCKET\n",
	} {
		dir, err := os.MkdirTemp("", "h") // socket paths are limited to 108 bytes
		if err != nil {
			t.Fatal(err)
		}
		path, file := filepath.Join(dir, "s.sock"), filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "SOCKET", path)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitUsage {
			t.Errorf("invalid %s without an agent: exit code %d, want 2: %s", name, code, errs.String())
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.HeaderMinor, "1")
			fmt.Fprintln(w, "ok")
		})}
		go func() { _ = server.Serve(l) }()
		out.Reset()
		errs.Reset()
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitOK {
			t.Errorf("invalid %s: exit code %d, want 0: %s", name, code, errs.String())
		}
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
}

// With an invalid configuration status reports it, and the state of the node.
func TestStatusWithInvalidConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: /nonexistent/s.sock\nevictionHrad: {}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"status", "--config", file}, &out, &errs)
	for _, want := range []string{"NOT HEALTHY", `"evictionHrad"`, "the agent does not answer"} {
		if code != exitFailed || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, want 1 with %q: %s%s", code, want, out.String(), errs.String())
		}
	}
}

// snapshot works with an invalid configuration, and reports it.
func TestSnapshotWithInvalidConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: /nonexistent/s.sock\nstateDir: " + dir + "\nevictionHrad: {}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := []string{"snapshot", filepath.Join(dir, "s.tar.gz"), "--config", file, "--cgroup-mount", filepath.Join(dir, "none")}
	if code := execute(t.Context(), args, &out, &errs); code != exitOK || !strings.Contains(errs.String(), `unknown field "evictionHrad"`) {
		t.Errorf("exit code %d, want 0 with the unknown field: %s%s", code, out.String(), errs.String())
	}
}

// listen starts a fake agent on a socket in a new directory.
func listen(t *testing.T) (dir, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") // socket paths are limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/state") {
			fmt.Fprintln(w, `{"version":"v9","pods":{"clients":0}}`)
			return
		}
		w.Header().Set(api.HeaderMinor, "1")
		fmt.Fprintln(w, "ok")
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		_ = os.RemoveAll(dir)
	})
	return dir, path
}

// The field socket is read at the start only: commands find an agent that listens on the former path.
func TestSocketForNextStart(t *testing.T) {
	dir, path := listen(t)
	if err := socketpath.Store(dir, path); err != nil {
		t.Fatal(err)
	}
	for name, edited := range map[string]string{"another": filepath.Join(dir, "new.sock"), "none": `""`} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: " + edited + "\nstateDir: " + dir + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitOK {
			t.Errorf("socket changed to %s: exit code of health = %d, want 0: %s", name, code, errs.String())
		}
		out.Reset()
		if execute(t.Context(), []string{"status", "--config", file}, &out, &errs); strings.Contains(out.String(), "does not answer") {
			t.Errorf("socket changed to %s: status did not find the agent: %s", name, out.String())
		}
		if err := socketpath.Store(dir, filepath.Join(dir, "gone.sock")); err != nil {
			t.Fatal(err)
		}
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitFailed {
			t.Errorf("socket changed to %s, no agent: exit code of health = %d, want 1", name, code)
		}
		if err := socketpath.Store(dir, path); err != nil {
			t.Fatal(err)
		}
	}
}

// Commands that only read use the readable fields of an invalid configuration, and report it in one line.
func TestCommandsWithInvalidConfiguration(t *testing.T) {
	dir, path := listen(t)
	file, pod := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "pod.yaml")
	text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHrad: {}\nsocket: " + path + "\nstateDir: " + dir +
		"\ncontainerRuntimeEndpoint: unix://" + dir + "/r.sock\n"
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(pod, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	none := "--cgroup-mount=" + filepath.Join(dir, "none") // the content of the node is irrelevant
	for _, args := range [][]string{
		{"records"}, {"events"}, {"admit", "--file", pod}, {"explain"}, {"top", "-n", "1", none}, {"check", none}, {"stats", none},
		{"gc", "--dry-run", none},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), append(args, "--config", file, "-o", "json"), &out, &errs)
		warning := "jettison: " + args[0] + ": invalid configuration, using the fields that can be read: "
		n, why := strings.Count(errs.String(), warning), `unknown field "evictionHrad"`
		if n != 1 || code == exitUsage || !strings.Contains(errs.String(), why) {
			t.Errorf("%v: exit code %d with %d warnings, want one warning and not 2: %s", args, code, n, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"gc", "--yes", "--config", file}, &out, &errs); code != exitUsage {
		t.Errorf("gc --yes with an invalid configuration: exit code %d, want 2: %s", code, errs.String())
	}
}
