package flags

import (
	"os"

	"github.com/spf13/pflag"

	"jettison/internal/node/config"
)

// AddConfig adds the flags that name configuration files, for a command that also reads the
// kubelet's configuration.
func AddConfig(f *pflag.FlagSet, p *config.Places) {
	AddConfigFile(f, &p.Path)
	f.StringVar(&p.Dir, "config-dir", "",
		"drop-in directory of the kubelet configuration, as in the kubelet")
}

// AddConfigFile adds the flag that names the agent's configuration file.
func AddConfigFile(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "config", "", "configuration file (default "+config.DefaultPath+
		" if it exists)")
}

// AddMounts adds the flags for the mount points of the node's file systems.
func AddMounts(f *pflag.FlagSet, cgroupMount, procMount, hostRoot *string) {
	f.StringVar(cgroupMount, "cgroup-mount", "/sys/fs/cgroup",
		"mount point of the node's cgroup v2 tree")
	AddProcMount(f, procMount)
	f.StringVar(hostRoot, "host-root", defaultHostRoot(), "path of the node's root directory")
}

// AddProcMount adds --proc-mount.
func AddProcMount(f *pflag.FlagSet, procMount *string) {
	f.StringVar(procMount, "proc-mount", "/proc", "mount point of the node's /proc")
}

// defaultHostRoot returns the root directory of process 1 if this process can see it and has a
// different root, as in a container with the host's PID namespace; else "/".
func defaultHostRoot() string {
	const host = "/proc/1/root"
	own, err1 := os.Stat("/")
	first, err2 := os.Stat(host + "/")
	if err1 == nil && err2 == nil && !os.SameFile(own, first) {
		return host
	}
	return "/"
}
