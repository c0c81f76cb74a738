package flags

import (
	"os"

	"github.com/spf13/pflag"

	"jettison/internal/node/config"
)

// AddConfig adds the flags that name the configuration's files, for a command that reads a
// kubelet's configuration too.
func AddConfig(f *pflag.FlagSet, p *config.Places) {
	f.StringVarP(&p.Path, "config", "f", "",
		"configuration file (default "+config.DefaultPath+
			" if it is there), over what the node's kubelet goes by")
	f.StringVar(&p.Dir, "config-dir", "",
		"directory of drop-ins over a kubelet's configuration file, as its --config-dir")
}

// AddConfigFile adds the flag that names the agent's configuration file.
func AddConfigFile(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "config", "", "configuration file (default "+config.DefaultPath+
		" if it is there)")
}

// AddMounts adds the flags that say where the node's file systems are mounted.
func AddMounts(f *pflag.FlagSet, cgroupMount, procMount, hostRoot *string) {
	f.StringVar(cgroupMount, "cgroup-mount", "/sys/fs/cgroup",
		"where the node's cgroup v2 hierarchy is mounted")
	AddProcMount(f, procMount)
	f.StringVar(hostRoot, "host-root", defaultHostRoot(), "where the node's root directory is seen")
}

// AddProcMount adds the flag that says where the node's /proc is mounted.
func AddProcMount(f *pflag.FlagSet, procMount *string) {
	f.StringVar(procMount, "proc-mount", "/proc", "where the node's /proc is mounted")
}

// defaultHostRoot is the root of the node's first process where this one sees it and has another
// root of its own, as in a container with the host's process ids.
func defaultHostRoot() string {
	const host = "/proc/1/root"
	own, err1 := os.Stat("/")
	first, err2 := os.Stat(host + "/")
	if err1 == nil && err2 == nil && !os.SameFile(own, first) {
		return host
	}
	return "/"
}
