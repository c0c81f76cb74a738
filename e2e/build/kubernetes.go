package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Versions of what is built. A library of Kubernetes' release has its number under v0; etcd's is the one that the release itself
// requires, so that nothing else moves.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.6.8"
)

// command is where Kubernetes has its programs.
const command = "k8s.io/kubernetes/cmd/"

// Kubelet builds the kubelet, three minutes the first time, and returns its folder.
func Kubelet(ctx context.Context, say Say) (string, error) {
	return Cached("kubelet-"+KubernetesVersion+"-"+runtime.Version(), say, func(dir string) error {
		return kubernetes(ctx, dir, command+"kubelet")
	})
}

// ControlPlane builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kubemark, 590 s of CPU time the first
// time, and returns their folder.
func ControlPlane(ctx context.Context, say Say) (string, error) {
	key := strings.Join([]string{"control-plane", KubernetesVersion, EtcdVersion, runtime.Version()}, "-")
	return Cached(key, say, func(dir string) error {
		err := kubernetes(ctx, dir, command+"kube-apiserver", command+"kube-controller-manager", command+"kube-scheduler",
			command+"kubectl", command+"kubemark", "go.etcd.io/etcd/server/v3")
		if err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, "etcd"))
	})
}

// kubernetes builds packages of Kubernetes and etcd into a folder. k8s.io/kubernetes cannot be had by go install, as it replaces
// modules, so a module is made that requires it: always the same one, so that no package is compiled twice.
func kubernetes(ctx context.Context, dir string, packages ...string) error {
	module, env := filepath.Join(dir, "module"), []string{"GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0"}
	if err := os.Mkdir(module, 0o755); err != nil {
		return err
	}
	write := func(text string) error { return os.WriteFile(filepath.Join(module, "go.mod"), []byte(text), 0o644) }
	if err := write("module cluster\n"); err != nil {
		return err
	}
	said, err := Run(ctx, module, env, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+KubernetesVersion)
	if err != nil {
		return err
	}
	var download struct{ GoMod string }
	if err := json.Unmarshal(said, &download); err != nil {
		return fmt.Errorf("read where k8s.io/kubernetes is: %w", err)
	}
	text, err := os.ReadFile(download.GoMod)
	if err != nil {
		return err
	}
	text, err = clusterModule(text)
	if err != nil {
		return fmt.Errorf("%s: %w", download.GoMod, err)
	}
	if err := write(string(text)); err != nil {
		return err
	}
	flags := "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion // the numbers at /version come of it
	_, err = Run(ctx, module, env, "go", append([]string{"build", "-trimpath", flags, "-o", dir + "/"}, packages...)...)
	return err
}

// languageLine are the lines of go.mod that say how its main packages are compiled.
var languageLine = regexp.MustCompile(`(?m)^(go|godebug) .*$`)

// stagingLine is a library that k8s.io/kubernetes requires out of its own tree.
var stagingLine = regexp.MustCompile(`(?m)^\s*(k8s\.io/[a-z-]+) v0\.0\.0$`)

// clusterModule makes, of the go.mod of k8s.io/kubernetes, that of a module which requires it with its libraries as they were released.
// Those that it replaces and does not require are left out: not all of them were released. A library that is replaced and not required
// here would be of version v0.0.0 until a later command completes go.mod, and then everything would be compiled again.
func clusterModule(source []byte) ([]byte, error) {
	staging := stagingLine.FindAllSubmatch(source, -1)
	language := languageLine.FindAll(source, -1)
	if len(staging) == 0 || len(language) == 0 {
		return nil, errors.New("not the go.mod of Kubernetes: no line `go`, or no library of version v0.0.0")
	}
	library := "v0" + strings.TrimPrefix(KubernetesVersion, "v1")
	out := []byte("module cluster\n\n")
	for _, line := range language {
		out = append(append(out, line...), '\n')
	}
	out = fmt.Appendf(out, "\nrequire k8s.io/kubernetes %s\nrequire go.etcd.io/etcd/server/v3 %s\n", KubernetesVersion, EtcdVersion)
	for _, m := range staging {
		out = fmt.Appendf(out, "require %s %s\nreplace %[1]s => %[1]s %[2]s\n", m[1], library)
	}
	return out, nil
}
