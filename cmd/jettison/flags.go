package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/config"
	"jettison/internal/observe"
	"jettison/internal/show"
)

// lookFlags are those of the commands that look at a node once.
type lookFlags struct {
	config  config.Places
	options observe.Options
	socket  string // of the agent, in place of the configuration's; empty: that one
}

func (l *lookFlags) add(cmd *cobra.Command) {
	l.addPlaces(cmd)
	f := cmd.Flags()
	f.DurationVar(&l.options.Watch, "watch", time.Second, "how long to watch before the figures that are rates")
	f.DurationVar(&l.options.Wait, "wait", 5*time.Second, "longest wait for the runtime, file systems and directories")
}

// addPlaces adds the flags that say where things are.
func (l *lookFlags) addPlaces(cmd *cobra.Command) {
	f := cmd.Flags()
	addConfig(cmd, &l.config)
	f.StringVar(&l.options.CgroupMount, "cgroup-mount", "/sys/fs/cgroup", "where the node's cgroup v2 hierarchy is mounted")
	f.StringVar(&l.options.ProcMount, "proc-mount", "/proc", "where the node's /proc is mounted")
	f.StringVar(&l.options.HostRoot, "host-root", defaultHostRoot(), "where the node's root directory is seen")
}

// addConfig adds the flags that say where the configuration is.
func addConfig(cmd *cobra.Command, p *config.Places) {
	f := cmd.Flags()
	f.StringVarP(&p.Path, "config", "f", "",
		"configuration file (default "+config.DefaultPath+" if it is there), over what the node's kubelet goes by")
	f.StringVar(&p.Dir, "config-dir", "", "directory of drop-ins over a kubelet's configuration file, as its --config-dir")
}

// find loads the configuration.
func (l *lookFlags) find(ctx context.Context) (err error) {
	l.config.ProcMount = l.options.ProcMount
	if l.options.Config, err = config.Find(ctx, l.config); err != nil {
		return usageError{err}
	}
	if l.socket != "" {
		l.options.Config.Socket = l.socket
	}
	return nil
}

// findOrSalvage is find for a command that has to work where the configuration is wrong: by what can be taken of it, and wrong says what
// is not right.
func (l *lookFlags) findOrSalvage(ctx context.Context) (wrong, err error) {
	if wrong = l.find(ctx); wrong == nil {
		return nil, nil
	}
	c, ok := config.Salvage(ctx, l.config.Path)
	if ctx.Err() != nil || !ok {
		return nil, wrong
	}
	l.options.Config = c
	l.options.Config.Socket = cmp.Or(l.socket, l.options.Config.Socket)
	return wrong, nil
}

// defaultHostRoot is the root of the node's first process where this one sees it and has another root of its own, as in a
// container with the host's process ids.
func defaultHostRoot() string {
	const host = "/proc/1/root"
	own, err1 := os.Stat("/")
	first, err2 := os.Stat(host + "/")
	if err1 == nil && err2 == nil && !os.SameFile(own, first) {
		return host
	}
	return "/"
}

// load reads the configuration and checks the flags.
func (l *lookFlags) load(ctx context.Context) error {
	for _, f := range []struct {
		name  string
		value time.Duration
		most  time.Duration
	}{{"watch", l.options.Watch, 10 * time.Minute}, {"wait", l.options.Wait, 10 * time.Minute}} {
		if f.value <= 0 || f.value > f.most {
			return usageError{fmt.Errorf("--%s %v: want more than 0 and at most %v", f.name, f.value, f.most)}
		}
	}
	return l.find(ctx)
}

// addSocket adds the flag of where the agent is asked.
func (l *lookFlags) addSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.socket, "socket", "", "the agent's socket (default socket of the configuration)")
}

// addSocketAlone adds the flags of a command that needs the agent's socket and nothing else.
func addSocketAlone(cmd *cobra.Command, socket, path *string) {
	f := cmd.Flags()
	f.StringVar(socket, "socket", "", "the agent's socket (default socket of the configuration)")
	f.StringVar(path, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
}

// socketOf is the socket that a flag names, or else the configuration.
func socketOf(cmd *cobra.Command, socket, path string) (string, error) {
	if socket != "" {
		return socket, nil
	}
	c, err := config.Load(cmd.Context(), path)
	if err != nil {
		return "", usageError{err}
	}
	if c.Socket == "" {
		return "", fmt.Errorf("%s: socket is empty in the configuration, so the agent cannot be asked: name another one with --socket",
			cmd.Name())
	}
	return c.Socket, nil
}

// nodeName is what the node is called: as its configuration says, or the DaemonSet, or the machine.
func (l *lookFlags) nodeName() string {
	host, _ := os.Hostname()
	return cmp.Or(l.options.Config.HostnameOverride, os.Getenv("NODE_NAME"), host)
}

// addOutput adds the flag of how an answer is printed.
func addOutput(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", string(show.AsTable), "table, wide, json or yaml")
}

// formatOf reads that flag.
func formatOf(output string) (show.Format, error) {
	format, err := show.ParseFormat(output)
	if err != nil {
		return "", usageError{err}
	}
	return format, nil
}
