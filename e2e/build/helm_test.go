package build

import "testing"

// The generated module requires Helm in the version of the chart's tests, and nothing else.
func TestHelmsModule(t *testing.T) {
	const source = "module chart\n\ngo 1.26.0\n\nrequire (\n\thelm.sh/helm/v4 v4.3.1\n\tjettison v0.0.0\n)\n"
	const want = "module helm\n\ngo 1.26.0\n\nrequire helm.sh/helm/v4 v4.3.1\n"
	version, module, err := helmModule([]byte(source))
	if err != nil || version != "v4.3.1" || string(module) != want {
		t.Errorf("generated go.mod for version %q (error %v):\n%s, want\n%s", version, err, module, want)
	}
	if _, _, err := helmModule([]byte("module other\n\ngo 1.26\n")); err == nil {
		t.Error("a go.mod without Helm is accepted, want an error")
	}
}
