package kubeconfig

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"jettison/internal/base/filetest"
)

// write writes a kubeconfig for a server.
func write(t *testing.T, path, server string) string {
	t.Helper()
	return filetest.Write(t, path, "clusters: [{name: c, cluster: {server: 'https://"+server+"'}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n")
}

// The order is --kubeconfig, $KUBECONFIG, the pod's service account, ~/.kube/config.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	flag, variable := write(t, filepath.Join(dir, "flag"), "flag"), write(t, filepath.Join(dir, "variable"), "variable")
	none, empty := filepath.Join(dir, "none"), filetest.Write(t, filepath.Join(dir, "empty"), "")
	withHome, withoutHome := filepath.Join(dir, "home"), filepath.Join(dir, "nobody")
	write(t, filepath.Join(withHome, ".kube", "config"), "home")
	for _, c := range []struct {
		path, variable, home, pod string
		want                      string // host, or a part of the error after "!"
	}{
		{flag, variable, withHome, "", "https://flag"},
		{"", variable, withHome, "10.0.0.1", "https://variable"},
		{"", none + ":" + variable, withHome, "", "https://variable"},
		{"", "", withHome, "10.0.0.1", "!serviceaccount/token: no such file"},
		{"", "", withHome, "", "https://home"},
		{"", "", withoutHome, "", "!pass --kubeconfig, set $KUBECONFIG or create " + withoutHome + "/.kube/config"},
		{none, variable, withHome, "", "!" + none + ": no such file"},
		{"", none, withHome, "10.0.0.1", "!$KUBECONFIG \"" + none + "\": no current context"},
		{empty, variable, withHome, "", "!no current context: the file is missing or empty"},
		{"/dev/zero", "", withHome, "", "!/dev/zero is a device, want a file"},
		{"", "/dev/zero", withHome, "", "!/dev/zero is a device, want a file"},
		{dir, "", withHome, "", "!is a directory"},
	} {
		t.Setenv("KUBECONFIG", c.variable)
		t.Setenv("HOME", c.home)
		t.Setenv("KUBERNETES_SERVICE_HOST", c.pod)
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
		got, err := Load(c.path)
		text, fails := strings.CutPrefix(c.want, "!")
		if fails && (err == nil || !strings.Contains(err.Error(), text)) || !fails && (err != nil || got.Host != text) {
			t.Errorf("Load(%q) with $KUBECONFIG %q, home %q, pod %q = %v, %v, want %q", c.path, c.variable, c.home, c.pod,
				fmt.Sprint(got), err, c.want)
		}
	}
}
