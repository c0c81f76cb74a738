package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/cri/critest"
)

func TestGCUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"gc", "--trigger", "now"}, exitUsage, `--trigger "now": want periodic or diskPressure`},
		{[]string{"gc", "--config", "nowhere"}, exitUsage, "nowhere: no such file"},
		{[]string{"gc", "--from", "nowhere"}, exitFailed, "nowhere/gc.json: no such file or directory: --from needs a directory with containers.json, sandboxes.json, images.json and gc.json"},
		{[]string{"gc", "--dry-run", "--from", "gc_test.go"}, exitFailed, "gc_test.go/gc.json: not a directory: --from needs a directory with containers.json, sandboxes.json, images.json and gc.json"},
		{[]string{"gc", "--from", "nowhere", "-o", "xml"}, exitUsage, `--output "xml": want table, wide, json or yaml`},
		{[]string{"gc"}, exitUsage, "gc: cannot ask for confirmation, standard input is not a terminal: use --yes"},
		{[]string{"gc", "here"}, exitUsage, "gc takes no arguments"},
	} {
		var stdout, stderr bytes.Buffer
		code := execute(context.Background(), test.args, &stdout, &stderr)
		if code != test.code || !strings.Contains(stderr.String(), test.want) || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%v: exit code %d with %q, want %d with %q", test.args, code, stderr.String(), test.code, test.want)
		}
	}
}

func asRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("jettison gc needs root to remove: covered by make e2e RUN=Garbage")
	}
}

// The state of passes is in stateDir, unless --state-dir is set.
func TestGCStateDir(t *testing.T) {
	asRoot(t)
	for name, c := range map[string]struct {
		config string
		flags  []string
		want   string
	}{
		"the configuration": {"stateDir: %s/own\n", nil, "own"},
		"the flag wins":     {"stateDir: %s/own\n", []string{"--state-dir", "%s/flag"}, "flag"},
		"the flag: nothing": {"stateDir: %s/own\n", []string{"--state-dir", ""}, ""},
		"nothing":           {"stateDir: \"\" # not %s\n", nil, ""},
		"nothing, the flag": {"stateDir: \"\" # not %s\n", []string{"--state-dir", "%s/flag"}, "flag"},
	} {
		r, dir := critest.Start(t), t.TempDir()
		path := filepath.Join(dir, "config.yaml")
		text := fmt.Sprintf("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\ncontainerRuntimeEndpoint: %s\ngc: act\nsocket: \"\"\n", r.Endpoint()) +
			fmt.Sprintf(c.config, dir)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"gc", "--yes", "--config", path, "--host-root", dir, "--cgroup-mount", filepath.Join(dir, "none")}
		for _, f := range c.flags {
			args = append(args, strings.ReplaceAll(f, "%s", dir))
		}
		var out, errs bytes.Buffer
		if code := execute(context.Background(), args, &out, &errs); code != 0 {
			t.Errorf("%s: exit code %d, want 0: %s", name, code, &errs)
		}
		for _, in := range []string{"own", "flag"} {
			kept, err := filepath.Glob(filepath.Join(dir, in, "*.json"))
			if (len(kept) > 0) != (in == c.want) || err != nil {
				t.Errorf("%s: state files in %s = %v (error %v), want them in %q", name, in, kept, err, c.want)
			}
		}
	}
}
