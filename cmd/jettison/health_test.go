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

	"jettison/internal/node/socketpath"
)

// A probe goes by /healthz or /readyz; of an agent that has none, by its state.
func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]int
		args    []string
		code    int
		says    string
	}{
		"alive":                  {map[string]int{"/healthz": 200}, nil, exitOK, "ok\n"},
		"it hangs":               {map[string]int{"/healthz": 503, "/v1/state": 200}, nil, exitFailed, "status 503: no"},
		"not ready":              {map[string]int{"/healthz": 200, "/readyz": 503}, []string{"--ready"}, exitFailed, "status 503: no"},
		"older, and well":        {map[string]int{"/healthz": 404, "/v1/state": 200}, nil, exitOK, "ok\n"},
		"older, and it hangs":    {map[string]int{"/readyz": 404, "/v1/state": 503}, []string{"--ready"}, exitFailed, "status 503: no"},
		"as long as nobody asks": {nil, []string{"--limit", "0s"}, exitUsage, "--limit 0s"},
	} {
		dir, err := os.MkdirTemp("", "h") // a socket's path is short
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
			case status != http.StatusOK:
				w.WriteHeader(status)
				fmt.Fprintln(w, `{"error": "no"}`)
			default:
				fmt.Fprintln(w, `{"pods": {"clients": 0}}`)
			}
		})}
		go func() { _ = server.Serve(l) }()
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"health", "--socket", path}, c.args...), &out, &errs)
		if all := out.String() + errs.String(); code != c.code || !strings.Contains(all, c.says) {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, c.code, all)
		}
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
}

// A configuration that is wrong leaves what the agent has, and must not have a probe end that agent: the next one would not start.
func TestHealthBesideAWrongConfiguration(t *testing.T) {
	for name, text := range map[string]string{
		"a field":  "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: SOCKET\nevictionHrad: {}\n",
		"a value":  "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: SOCKET\nmaxPods: many\n",
		"its kind": "socket: SOCKET\n",
	} {
		dir, err := os.MkdirTemp("", "h") // a socket's path is short
		if err != nil {
			t.Fatal(err)
		}
		path, file := filepath.Join(dir, "s.sock"), filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "SOCKET", path)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitUsage {
			t.Errorf("%s, and no agent: exit code %d: %s", name, code, errs.String())
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "{}") })}
		go func() { _ = server.Serve(l) }()
		out.Reset()
		errs.Reset()
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitOK {
			t.Errorf("%s: exit code %d: %s", name, code, errs.String())
		}
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
}

// At three in the morning the configuration is wrong: status says that, and how the node stands all the same.
func TestStatusBesideAWrongConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: /nonexistent/s.sock\nevictionHrad: {}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"status", "--config", file}, &out, &errs)
	for _, want := range []string{"NOT HEALTHY", `"evictionHrad"`, "the agent does not answer"} {
		if code != exitFailed || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, no %q: %s%s", code, want, out.String(), errs.String())
		}
	}
}

// So does the archive for somebody who is to find out why.
func TestSnapshotBesideAWrongConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: /nonexistent/s.sock\nstateDir: " + dir + "\nevictionHrad: {}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := []string{"snapshot", filepath.Join(dir, "s.tar.gz"), "--config", file, "--cgroup-mount", filepath.Join(dir, "none")}
	if code := execute(t.Context(), args, &out, &errs); code != exitOK || !strings.Contains(errs.String(), `unknown field "evictionHrad"`) {
		t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
	}
}

// listening is an agent that answers at a socket in a folder of its own.
func listening(t *testing.T) (dir, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") // a socket's path is short
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
		fmt.Fprintln(w, "{}")
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		_ = os.RemoveAll(dir)
	})
	return dir, path
}

// The socket is read at the start only: an agent that listens where the file said before is alive, and is the one that is asked.
func TestASocketForTheNextStart(t *testing.T) {
	dir, path := listening(t)
	if err := socketpath.Leave(dir, path); err != nil {
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
			t.Errorf("%s: health: exit code %d: %s", name, code, errs.String())
		}
		out.Reset()
		if execute(t.Context(), []string{"status", "--config", file}, &out, &errs); strings.Contains(out.String(), "does not answer") {
			t.Errorf("%s: status: %s", name, out.String())
		}
		if err := socketpath.Leave(dir, filepath.Join(dir, "gone.sock")); err != nil {
			t.Fatal(err)
		}
		if code := execute(t.Context(), []string{"health", "--config", file}, &out, &errs); code != exitFailed {
			t.Errorf("%s: nobody listens, and health ends with %d", name, code)
		}
		if err := socketpath.Leave(dir, path); err != nil {
			t.Fatal(err)
		}
	}
}

// A command that shows something goes by what can be read of a wrong configuration, and says in one line that it does.
func TestCommandsBesideAWrongConfiguration(t *testing.T) {
	dir, path := listening(t)
	file, pod := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "pod.yaml")
	text := "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHrad: {}\nsocket: " + path + "\nstateDir: " + dir +
		"\ncontainerRuntimeEndpoint: unix://" + dir + "/r.sock\n"
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(pod, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	none := "--cgroup-mount=" + filepath.Join(dir, "none") // what they see of the node is not asked about
	for _, args := range [][]string{
		{"records"}, {"events"}, {"admit", "-f", pod}, {"explain"}, {"top", "-n", "1", none}, {"check", none}, {"stats", none},
		{"gc", "--dry-run", none},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), append(args, "--config", file, "-o", "json"), &out, &errs)
		said := "jettison: " + args[0] + ": the configuration is wrong, and what can be read of it is gone by: "
		n, why := strings.Count(errs.String(), said), `unknown field "evictionHrad"`
		if n != 1 || code == exitUsage || !strings.Contains(errs.String(), why) {
			t.Errorf("%v: exit code %d, said %d times: %s", args, code, n, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"gc", "--yes", "--config", file}, &out, &errs); code != exitUsage {
		t.Errorf("gc removes by a configuration that is wrong: exit code %d: %s", code, errs.String())
	}
}
