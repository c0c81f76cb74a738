package build

import "testing"

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

require k8s.io/kubernetes v1.36.3
require go.etcd.io/etcd/server/v3 v3.6.8
require k8s.io/api v0.36.3
replace k8s.io/api => k8s.io/api v0.36.3
require k8s.io/kubelet v0.36.3
replace k8s.io/kubelet => k8s.io/kubelet v0.36.3
`
	got, err := clusterModule([]byte(source))
	if err != nil || string(got) != want {
		t.Errorf("generated go.mod differs (error %v):\n%s", err, got)
	}
	if _, err := clusterModule([]byte("module other\n\ngo 1.26\n")); err == nil {
		t.Error("go.mod of another module is accepted, want an error")
	}
}
