package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"jettison/deploy/oci"
	"jettison/e2e/build"
	"jettison/e2e/guestapi"
)

// Versions of the node's programs.
const (
	containerdVersion = "v2.4.2"
	runcVersion       = "v1.5.2"
	cniVersion        = "v1.9.1"
)

// Kernels maps each kernel that the node can boot to the Debian package that depends on its newest
// version.
var Kernels = map[string]string{
	"6.12": "linux-image-6.12-cloud-amd64",
	"6.1":  "linux-image-cloud-amd64",
}

// Names of the images on the node.
const (
	ImagePause    = "localhost/pause:1"
	ImageWorkload = "localhost/workload:1"
	ImageAgent    = "localhost/jettison:dev"
)

// parts are the files on the host that a node is assembled from.
type parts struct {
	kernelVersion string
	vmlinuz       string
	modules       string // lib/modules/VERSION
	engine        guestapi.Runtime
	tools         map[string]string // program name to path: the runtime, runc, busybox, CNI plugins, perhaps kubelet
	guest         string            // the guest's init
	systemd       string            // tar of a distribution with systemd; empty: the guest's init is process 1
	workload      string
	agent         string
	images        map[string]string // image name to its tar
}

// kernel fetches and unpacks a kernel package. A cached kernel needs no network and keeps its
// version until the cache entry is removed.
func (p *parts) kernel(ctx context.Context, word string, say Say) error {
	meta, ok := Kernels[word]
	if !ok {
		return fmt.Errorf("kernel %q: want one of %v", word, slices.Sorted(maps.Keys(Kernels)))
	}
	dir, err := build.Cached("kernel-"+word, say, func(dir string) error {
		name, err := kernelPackage(ctx, meta)
		if err != nil {
			return err
		}
		if _, err := build.Run(ctx, dir, nil, "apt-get", "-q", "download", name); err != nil {
			return err
		}
		debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
		if len(debs) != 1 {
			return fmt.Errorf("apt-get download %s left %d files", name, len(debs))
		}
		if _, err := build.Run(ctx, dir, nil, "dpkg", "-x", debs[0], dir); err != nil {
			return err
		}
		return os.Remove(debs[0])
	})
	if err != nil {
		return err
	}
	images, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if len(images) != 1 {
		return fmt.Errorf("%s holds %d kernels, want 1: remove the folder and run again", dir, len(images))
	}
	p.vmlinuz = images[0]
	p.kernelVersion = strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	for _, lib := range []string{"lib", "usr/lib"} {
		if path := filepath.Join(dir, lib, "modules", p.kernelVersion); isDir(path) {
			p.modules = path
			return nil
		}
	}
	return fmt.Errorf("%s has no modules for %s: remove the folder and run again", dir, p.kernelVersion)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

var dependsLine = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)

// kernelPackage returns the package that the meta-package depends on. It updates apt's lists if apt
// does not know the package.
func kernelPackage(ctx context.Context, meta string) (string, error) {
	for try := 0; ; try++ {
		out, err := build.Run(ctx, "", nil, "apt-cache", "depends", meta)
		if m := dependsLine.FindSubmatch(out); err == nil && m != nil {
			return string(m[1]), nil
		}
		if try > 0 {
			return "", fmt.Errorf("apt does not know the package %s: add Debian's security archive to its sources", meta)
		}
		if _, err := build.Run(ctx, "", nil, "apt-get", "-q", "update"); err != nil {
			return "", fmt.Errorf("%w: run `apt-get update` as root", err)
		}
	}
}

// goInstall builds programs of a module at a version, outside this module.
func goInstall(ctx context.Context, key, version string, say Say, env, flags []string, packages ...string) (string, error) {
	return build.Cached(fmt.Sprintf("%s-%s-%s", key, version, runtime.Version()), say, func(dir string) error {
		args := append([]string{"install", "-trimpath"}, flags...)
		for _, p := range packages {
			args = append(args, p+"@"+version)
		}
		_, err := build.Run(ctx, dir, append(env, "GOBIN="+dir, "GOFLAGS=", "GOWORK=off"), "go", args...)
		return err
	})
}

// cniPlugins give a pod its own network: ptp makes the pair of devices, host-local assigns
// addresses.
var cniPlugins = []string{"ptp", "host-local"}

// runtimeTools builds containerd, runc and the CNI plugins, and finds busybox.
func (p *parts) runtimeTools(ctx context.Context, say Say) error {
	p.engine, p.tools = guestapi.Containerd, map[string]string{}
	const containerd = "github.com/containerd/containerd/v2/cmd/"
	dir, err := goInstall(ctx, "containerd", containerdVersion, say, []string{"CGO_ENABLED=0"}, []string{"-ldflags=-s -w"},
		containerd+"containerd", containerd+"containerd-shim-runc-v2", containerd+"ctr")
	if err != nil {
		return err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		p.tools[name] = filepath.Join(dir, name)
	}
	// Without seccomp a sandbox with the profile RuntimeDefault, which a kubelet requests, fails.
	dir, err = goInstall(ctx, "runc-seccomp", runcVersion, say, []string{"CGO_ENABLED=1"},
		[]string{"-tags=netgo osusergo seccomp", "-ldflags=-s -w -extldflags -static"}, "github.com/opencontainers/runc")
	if err != nil {
		return err
	}
	p.tools["runc"] = filepath.Join(dir, "runc")
	const cni = "github.com/containernetworking/plugins/plugins/"
	dir, err = goInstall(ctx, "cni-plugins", cniVersion, say, []string{"CGO_ENABLED=0"}, []string{"-ldflags=-s -w"}, cni+"main/ptp", cni+"ipam/host-local")
	if err != nil {
		return err
	}
	for _, name := range cniPlugins {
		p.tools[name] = filepath.Join(dir, name)
	}
	if p.tools["busybox"], err = exec.LookPath("busybox"); err != nil {
		return fmt.Errorf("%w: install the package busybox-static", err)
	}
	return nil
}

// distribution makes the root of a small Debian with systemd. It needs root: its files belong to
// several users.
func (p *parts) distribution(ctx context.Context, say Say) error {
	dir, err := build.Cached("debian-bookworm-systemd", say, func(dir string) error {
		_, err := build.Run(ctx, dir, nil, "mmdebstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,udev,kmod,iproute2,procps", "bookworm", "root.tar")
		return err
	})
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: install the package mmdebstrap", err)
	}
	p.systemd = filepath.Join(dir, "root.tar")
	return err
}

// ownPrograms builds the guest's init, the workload, pause and the agent from this checkout and packs the images.
func (p *parts) ownPrograms(ctx context.Context, say Say) error {
	root, err := build.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	say("building the guest's programs")
	if _, err := build.Run(ctx, root, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-o", bin+"/", "./e2e/guest", "./e2e/workload", "./e2e/pause"); err != nil {
		return err
	}
	p.guest, p.workload = filepath.Join(bin, "guest"), filepath.Join(bin, "workload")
	p.agent = filepath.Join(bin, "jettison-linux-"+runtime.GOARCH)
	p.images = map[string]string{
		ImagePause:    filepath.Join(bin, "pause.tar"),
		ImageWorkload: filepath.Join(bin, "workload.tar"),
		ImageAgent:    filepath.Join(bin, "jettison.tar"),
	}
	for name, program := range map[string]string{ImagePause: "pause", ImageWorkload: "workload"} {
		image := oci.Image{
			Name: name, Path: "/" + program, Entrypoint: []string{"/" + program},
			Binaries: map[string]string{runtime.GOARCH: filepath.Join(bin, program)},
		}
		if _, err := image.Write(p.images[name]); err != nil {
			return err
		}
	}
	_, err = packProgram(ctx, root, "jettison")
	return err
}

// PackProgram packs a program of this checkout as its image and returns the tar.
func PackProgram(ctx context.Context, name string) (tar string, err error) {
	preparing.Lock()
	defer preparing.Unlock()
	root, err := build.ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	return packProgram(ctx, root, name)
}

// packProgram packs a program as a user does, with `make image`, but only for this machine, and
// without the notices of linked modules, which take time.
func packProgram(ctx context.Context, root, name string) (tar string, err error) {
	_, err = build.Run(ctx, root, nil, "make", "-s", "image", "PROGRAMS="+name, "ARCHES="+runtime.GOARCH, "DIST=bin", "NOTICES=")
	return filepath.Join(root, "bin", name+".tar"), err
}
