package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/internal/base/commandline"
)

// What is wrong with a command line is one line, and exit code 2.
func TestBadUsage(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte("clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: "+
		"{cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "--kubeconfig=" + kubeconfig
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("clusters: [{name: c, cluster: {server: 'https://a b:1'}}]\ncontexts: [{name: c, context: "+
		"{cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`unknown command "walk": see jettison-bridge --help`: {"walk"},
		"unknown flag: --nope":                               {"run", "--nope"},
		"run takes no arguments, got":                        {"run", "x"},
		`--log-level "loud"`:                                 {"run", "--log-level=loud"},
		`--log-format "xml"`:                                 {"run", "--log-format=xml"},
		"outside a pod use --kubeconfig":                     {"run"},
		"find the API server in /nowhere:":                   {"cleanup", "--kubeconfig=/nowhere"},
		"set NODE_NAME or --node-name":                       {"run", at},
		`node name "N_1":`:                                   {"run", at, "--node-name=N_1"},
		"transition period -1s: want 0":                      {"run", at, "--node-name=n", "--transition-period=-1s"},
		`lease namespace "a/b":`:                             {"run", at, "--node-name=n", "--lease-namespace=a/b"},
		"find the API server in " + broken + ":":             {"cleanup", "--kubeconfig=" + broken},
		`lease namespace "a/c":`:                             {"cleanup", at, "--lease-namespace=a/c"},
	} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), args, &out, &errs); code != commandline.ExitUsage || strings.Count(errs.String(), "\n") != 1 ||
			!strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%v: exit code %d, stderr %q, stdout %q, want usage error %q", args, code, errs.String(), out.String(), want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for want, args := range map[string][]string{"devel\n": {"--version"}, "connects the agent of one node": {}, "cleanup": {"--help"}} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), args, &out, &errs); code != commandline.ExitOK || errs.Len() > 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q, want 0 and %q", args, code, out.String(), errs.String(), want)
		}
	}
}
