package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/commandline"
	"jettison/internal/config"
	"jettison/internal/observe"
	"jettison/internal/show"
	"jettison/internal/socket"
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
		return commandline.Usage(err)
	}
	l.options.Config.Socket = cmp.Or(l.socket, listensAt(l.options.Config.Config))
	return nil
}

// findOrSay is findOrSalvage for a command that says on stderr, in one line, that the configuration is wrong.
func (l *lookFlags) findOrSay(cmd *cobra.Command, stderr io.Writer) error {
	wrong, err := l.findOrSalvage(cmd.Context())
	saySalvaged(cmd, stderr, wrong)
	return err
}

// saySalvaged says what is wrong with a configuration of which a command has what could be read; nil: nothing.
func saySalvaged(cmd *cobra.Command, stderr io.Writer, wrong error) {
	if wrong != nil {
		fmt.Fprintf(stderr, "jettison: %s: the configuration is wrong, and what can be read of it is gone by: %s\n",
			cmd.Name(), show.OneLine(wrong.Error()))
	}
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
	l.options.Config.Socket = cmp.Or(l.socket, listensAt(c.Config))
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

// load checks the flags and reads the configuration, as findOrSay.
func (l *lookFlags) load(cmd *cobra.Command, stderr io.Writer) error {
	for _, f := range []struct {
		name  string
		value time.Duration
		most  time.Duration
	}{{"watch", l.options.Watch, 10 * time.Minute}, {"wait", l.options.Wait, 10 * time.Minute}} {
		if f.value <= 0 || f.value > f.most {
			return commandline.Usage(fmt.Errorf("--%s %v: want more than 0 and at most %v", f.name, f.value, f.most))
		}
	}
	return l.findOrSay(cmd, stderr)
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

// loadOrSalvage reads the configuration of a command that needs no more of it than a place. wrong is as of findOrSalvage.
func loadOrSalvage(ctx context.Context, path string) (c *config.Loaded, wrong, err error) {
	if c, err = config.Load(ctx, path); err == nil {
		return c, nil, nil
	}
	wrong = commandline.Usage(err)
	c, ok := config.Salvage(ctx, path)
	if ctx.Err() != nil || !ok {
		return nil, nil, wrong
	}
	return c, wrong, nil
}

// socketOf is the socket that a flag names, or else the agent's by the configuration, of which stderr is told what is wrong with it.
func socketOf(cmd *cobra.Command, stderr io.Writer, socket, path string) (string, error) {
	if socket != "" {
		return socket, nil
	}
	c, wrong, err := loadOrSalvage(cmd.Context(), path)
	if err != nil {
		return "", err
	}
	saySalvaged(cmd, stderr, wrong)
	if at := listensAt(c.Config); at != "" {
		return at, nil
	}
	return "", noSocket(cmd.Name())
}

// noSocket is what is said where nothing names a socket.
func noSocket(command string) error {
	return fmt.Errorf("%s: socket is empty in the configuration, so the agent cannot be asked: name another one with --socket", command)
}

// leftAt is where an agent has left that it listens: socket and stateDir are read at its start, and the configuration may say something
// else by now. Of a stateDir that was another the default is left.
func leftAt(c *config.Config) []string {
	return []string{socket.Left(c.StateDir), socket.Left(config.Default().StateDir)}
}

// listensAt is the socket of the configuration, or where that is not there the one that an agent has left; empty: none.
func listensAt(c *config.Config) string {
	for _, at := range append([]string{c.Socket}, leftAt(c)...) {
		if info, err := os.Stat(at); err == nil && info.Mode().Type() == os.ModeSocket {
			return at
		}
	}
	return c.Socket
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
		return "", commandline.Usage(err)
	}
	return format, nil
}
