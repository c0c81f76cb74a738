package config

import (
	"os"
	"path/filepath"

	"strings"
	"testing"
)

// A value that a kubelet rejects and the agent accepts is a warning in both kinds of files.
func TestKubeletRejects(t *testing.T) {
	for text, want := range map[string]string{
		"imageGCLowThresholdPercent: 85\n":               "imageGCLowThresholdPercent: 85 is not less than imageGCHighThresholdPercent, 85: a kubelet rejects this",
		"imageMaximumGCAge: 2m\n":                        "imageMaximumGCAge: 2m0s is not greater than imageMinimumGCAge, 2m0s: a kubelet rejects this",
		"imageMinimumGCAge: 1h\nimageMaximumGCAge: 1m\n": "imageMaximumGCAge: 1m0s is not greater than imageMinimumGCAge, 1h0m0s: a kubelet rejects this",
		"enforceNodeAllocatable: [pods, pods]\n":         `enforceNodeAllocatable: "pods" twice: a kubelet rejects this`,
		"enforceNodeAllocatable: [pods, none]\n":         `enforceNodeAllocatable: "none" with other values: a kubelet rejects this`,
		"enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\n": `enforceNodeAllocatable: ` +
			`"kube-reserved" with "kube-reserved-compressible": a kubelet rejects this`,
		"podLogsDir: /var/log/../log/pods\n": `podLogsDir: "/var/log/../log/pods" is not normalized: a kubelet rejects this`,
		"podLogsDir: /var/log/põds\n":        `podLogsDir: "/var/log/põds" is not all ASCII: a kubelet rejects this`,
		"imageMaximumGCAge: 3m\n":            "",
		"imageMinimumGCAge: 1h\n":            "",
		"enforceNodeAllocatable: [none]\n":   "",
	} {
		for _, kind := range []string{own, kubelet} {
			l, err := Parse([]byte(kind + text))
			if err != nil {
				t.Errorf("%q: error %v, want none", text, err)
				continue
			}
			if got := strings.Join(l.Warnings, "\n"); got != want {
				t.Errorf("%q: warnings %q, want %q", text, got, want)
			}
		}
	}
}

// Paths in a kubelet's file are relative to its folder. In the agent's file they are absolute.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kubelet.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(kubelet + "staticPodPath: manifests\npodLogsDir: ../logs\n")
	for _, path := range []string{file, "kubelet.yaml"} {
		t.Chdir(dir)
		l, err := Load(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if l.StaticPodPath != filepath.Join(dir, "manifests") || l.PodLogsDir != filepath.Join(filepath.Dir(dir), "logs") {
			t.Errorf("staticPodPath %q, podLogsDir %q, want paths in the file's folder", l.StaticPodPath, l.PodLogsDir)
		}
	}
	write(kubelet + "staticPodPath: /a/b\npodLogsDir: \"\"\n")
	if l, err := Load(t.Context(), file); err != nil || l.StaticPodPath != "/a/b" || l.PodLogsDir != "/var/log/pods" {
		t.Errorf("absolute and empty paths of a kubelet's file: got %+v, error %v", l, err)
	}
	write(own + "staticPodPath: manifests\n")
	if _, err := Load(t.Context(), file); err == nil || !strings.Contains(err.Error(), `3: staticPodPath: "manifests": want an absolute path`) {
		t.Errorf("relative path in the agent's file: error %v, want one with the line", err)
	}
}
