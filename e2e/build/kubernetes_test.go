package build

import (
	"strings"
	"testing"
)

// JETTISON_KUBE selects a release by its minor version.
func TestKubernetesReleases(t *testing.T) {
	for minor, want := range map[string]string{"": "v1.37.2", "1.37": "v1.37.2", "1.36": "v1.36.3", "1.3": "", "1.36.3": ""} {
		t.Setenv("JETTISON_KUBE", minor)
		r, err := Kubernetes()
		if r.Kubernetes != want || (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), "v1.36.3") {
			t.Errorf("release for JETTISON_KUBE=%q = %v, error %v, want %q", minor, r, err, want)
		}
	}
}

// The generated module requires the libraries that Kubernetes requires from its own tree, and
// replaces nothing else.
func TestTheClustersModule(t *testing.T) {
	const source = `module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
	github.com/spf13/cobra v1.10.0
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.140.0
	k8s.io/kubelet v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/sample-cli-plugin => ./staging/src/k8s.io/sample-cli-plugin
)
`
	const want = `module cluster

go 1.26.0
godebug default=go1.26

require k8s.io/kubernetes v1.37.2
require go.etcd.io/etcd/server/v3 v3.7.0
require k8s.io/api v0.37.2
replace k8s.io/api => k8s.io/api v0.37.2
require k8s.io/kubelet v0.37.2
replace k8s.io/kubelet => k8s.io/kubelet v0.37.2
`
	got, err := releases[0].clusterModule([]byte(source))
	if err != nil || string(got) != want {
		t.Errorf("generated go.mod differs (error %v):\n%s", err, got)
	}
	if _, err := releases[0].clusterModule([]byte("module other\n\ngo 1.26\n")); err == nil {
		t.Error("go.mod of another module is accepted, want an error")
	}
}
