package commandline

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The command version prints one line for people and scripts, and all versions as data.
func TestVersionPrintsAllVersions(t *testing.T) {
	run := func(args ...string) string {
		var out strings.Builder
		root := &cobra.Command{Use: "program"}
		Root(root, "v1.2.3", &out, &out)
		root.AddCommand(Version("program", "v1.2.3", &out))
		if err := Execute(t.Context(), root, args); err != nil {
			t.Fatalf("run the program with arguments %v: %v", args, err)
		}
		return out.String()
	}
	for _, arg := range []string{"version", "--version", "-v"} {
		if got := run(arg); got != "v1.2.3\n" {
			t.Errorf("%s = %q, want one line", arg, got)
		}
	}
	if got := run("version", "-o", "wide"); !strings.HasPrefix(got, "v1.2.3 "+runtime.Version()+", Kubernetes ") {
		t.Errorf("version -o wide = %q, want the versions of Go and Kubernetes", got)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(run("version", "-o", "json")), &got); err != nil {
		t.Fatalf("decode version -o json: %v", err)
	}
	if got["version"] != "v1.2.3" || got["go"] != runtime.Version() || got["platform"] != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("version -o json = %v, want the versions of the program and Go, and the platform", got)
	}
}

// The version of Kubernetes is that of the linked module, which is unknown without build information.
func TestKubernetesVersion(t *testing.T) {
	linked := func(path, version string) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: "k8s.io/utils", Version: "v0.0.0-2026"}, {Path: path, Version: version}}}
	}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{{nil, ""}, {&debug.BuildInfo{}, ""}, {linked("k8s.io/api", "v0.37.2"), "v1.37.2"}, {linked("k8s.io/api", "v0.38.0-rc.1"), "v1.38.0-rc.1"}} {
		if got := versionsOf("v1", c.info).Kubernetes; got != c.want {
			t.Errorf("version of Kubernetes for %+v = %q, want %q", c.info, got, c.want)
		}
	}
}
