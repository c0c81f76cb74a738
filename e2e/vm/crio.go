package vm

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"jettison/e2e/guestapi"
)

// crioPrograms are the files that a folder for Options.CRIO must have. runc is the harness's own.
var crioPrograms = []string{"crio", "conmon", "pinns"}

// crio takes the programs of CRI-O from a folder. This project neither builds nor ships them.
func (p *parts) crio(folder string) error {
	for _, name := range crioPrograms {
		path := filepath.Join(folder, name)
		if err := checkStatic(path); err != nil {
			return fmt.Errorf("CRI-O: %w: the folder needs the static programs %s", err, strings.Join(crioPrograms, ", "))
		}
		p.tools[name] = path
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		delete(p.tools, name)
	}
	p.engine = guestapi.CRIO
	return nil
}

// checkStatic returns an error if a file is not a statically linked program: the guest has no
// libraries.
func checkStatic(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is not a program: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically", path)
		}
	}
	return nil
}

// runtimeFiles returns the configuration of the node's runtime.
func (p *parts) runtimeFiles() map[string]string {
	if p.engine != guestapi.CRIO {
		return map[string]string{"etc/containerd/config.toml": containerdConfig(p.systemd != "")}
	}
	return map[string]string{
		"etc/crio/crio.conf.d/node.conf": crioConfig(p.systemd != ""),
		"etc/containers/policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}` + "\n",
		"etc/containers/registries.conf": crioRegistries,
	}
}

// crioConfig leaves everything at CRI-O's default that the node does not require. The node has no
// nft and no iptables, without which CRI-O maps no ports of the host. With the
// systemd driver, the monitors are in the pods' slices, as on OpenShift.
func crioConfig(systemd bool) string {
	manager := "cgroupfs"
	if systemd {
		manager = "systemd"
	}
	return `[crio.runtime]
cgroup_manager = ` + strconv.Quote(manager) + `
default_runtime = "runc"
disable_hostport_mapping = true
pinns_path = "/usr/local/bin/pinns"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/local/bin/runc"
monitor_path = "/usr/local/bin/conmon"
monitor_cgroup = "pod"
[crio.image]
pause_image = "` + ImagePause + `"
`
}

// crioRegistries makes the runtime pull images of localhost from the guest's registry.
const crioRegistries = `[[registry]]
prefix = "localhost"
location = "` + guestapi.Registry + `"
insecure = true
`
