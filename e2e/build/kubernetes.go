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

// Release has the versions of the built programs. A library of Kubernetes' release has the same
// number under v0. etcd's version is the one that the release requires, so that no other dependency
// changes.
type Release struct{ Kubernetes, Etcd string }

// releases are the reference and the version before it.
var releases = []Release{{"v1.37.2", "v3.7.0"}, {"v1.36.3", "v3.6.8"}}

// Kubernetes returns the release whose minor version is in the environment variable JETTISON_KUBE,
// such as 1.36, by default the reference.
func Kubernetes() (Release, error) {
	minor := os.Getenv("JETTISON_KUBE")
	for _, r := range releases {
		if minor == "" || strings.HasPrefix(r.Kubernetes, "v"+minor+".") {
			return r, nil
		}
	}
	return Release{}, fmt.Errorf("JETTISON_KUBE=%s: want the minor version of one of %v", minor, releases)
}

// command is the import path of Kubernetes' programs.
const command = "k8s.io/kubernetes/cmd/"

// Kubelet builds the kubelet, three minutes the first time, and returns its folder.
func Kubelet(ctx context.Context, say Say) (string, error) {
	r, err := Kubernetes()
	if err != nil {
		return "", err
	}
	return Cached("kubelet-"+r.Kubernetes+"-"+runtime.Version(), say, func(dir string) error {
		return r.build(ctx, dir, command+"kubelet")
	})
}

// ControlPlane builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kubemark, 590 s of CPU time the first
// time, and returns their folder.
func ControlPlane(ctx context.Context, say Say) (string, error) {
	r, err := Kubernetes()
	if err != nil {
		return "", err
	}
	key := strings.Join([]string{"control-plane", r.Kubernetes, r.Etcd, runtime.Version()}, "-")
	return Cached(key, say, func(dir string) error {
		err := r.build(ctx, dir, command+"kube-apiserver", command+"kube-controller-manager", command+"kube-scheduler",
			command+"kubectl", command+"kubemark", "go.etcd.io/etcd/server/v3")
		if err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, "etcd"))
	})
}

// build builds packages of Kubernetes and etcd into a folder. `go install` cannot build
// k8s.io/kubernetes, because it replaces modules. So a module is generated that requires it: always
// the same one, so that each package is compiled once.
func (r Release) build(ctx context.Context, dir string, packages ...string) error {
	module, env := filepath.Join(dir, "module"), []string{"GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0"}
	if err := os.Mkdir(module, 0o755); err != nil {
		return err
	}
	write := func(text string) error { return os.WriteFile(filepath.Join(module, "go.mod"), []byte(text), 0o644) }
	if err := write("module cluster\n"); err != nil {
		return err
	}
	said, err := Run(ctx, module, env, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+r.Kubernetes)
	if err != nil {
		return err
	}
	var download struct{ GoMod string }
	if err := json.Unmarshal(said, &download); err != nil {
		return fmt.Errorf("find the module k8s.io/kubernetes: %w", err)
	}
	text, err := os.ReadFile(download.GoMod)
	if err != nil {
		return err
	}
	text, err = r.clusterModule(text)
	if err != nil {
		return fmt.Errorf("%s: %w", download.GoMod, err)
	}
	if err := write(string(text)); err != nil {
		return err
	}
	flags := "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + r.Kubernetes // /version reports it
	_, err = Run(ctx, module, env, "go", append([]string{"build", "-trimpath", flags, "-o", dir + "/"}, packages...)...)
	return err
}

// languageLine matches the lines of go.mod that set how its main packages are compiled.
var languageLine = regexp.MustCompile(`(?m)^(go|godebug) .*$`)

// stagingLine matches a library that k8s.io/kubernetes requires from its own tree.
var stagingLine = regexp.MustCompile(`(?m)^\s*(k8s\.io/[a-z-]+) v0\.0\.0$`)

// clusterModule derives, from the go.mod of k8s.io/kubernetes, that of a module which requires it
// with its released libraries. It omits libraries that are replaced and not required: not all of
// them were released. A library that is replaced here without being required would have version
// v0.0.0 until a later command completes go.mod, and then everything would be compiled again.
func (r Release) clusterModule(source []byte) ([]byte, error) {
	staging := stagingLine.FindAllSubmatch(source, -1)
	language := languageLine.FindAll(source, -1)
	if len(staging) == 0 || len(language) == 0 {
		return nil, errors.New("not the go.mod of Kubernetes: no line `go`, or no library of version v0.0.0")
	}
	library := "v0" + strings.TrimPrefix(r.Kubernetes, "v1")
	out := []byte("module cluster\n\n")
	for _, line := range language {
		out = append(append(out, line...), '\n')
	}
	out = fmt.Appendf(out, "\nrequire k8s.io/kubernetes %s\nrequire go.etcd.io/etcd/server/v3 %s\n", r.Kubernetes, r.Etcd)
	for _, m := range staging {
		out = fmt.Appendf(out, "require %s %s\nreplace %[1]s => %[1]s %[2]s\n", m[1], library)
	}
	return out, nil
}
