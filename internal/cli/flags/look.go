// Package flags holds the flags that several commands of jettison share, and reads the
// configuration that they name.
//
//	look.go      Look: flags of a command that looks at the node
//	socket.go    Socket: flags of a command that only asks the agent
//	places.go    flags of the configuration's files and of the node's mounts
//	salvage.go   reading a configuration that is partly wrong
//	since.go     the value of --since
package flags

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/commandline"
	"jettison/internal/node/config"
	"jettison/internal/node/observe"
)

// maxDuration bounds --watch and --wait.
const maxDuration = 10 * time.Minute

// Look holds the flags of a command that looks at the node, and the options of that look. Load,
// Find, FindOrWarn and FindOrSalvage set Options.Config.
type Look struct {
	Options observe.Options

	places config.Places
	socket string // the agent's, in place of the configuration's; empty: that one
}

// Add adds the flags of AddPlaces, --watch and --wait.
func (l *Look) Add(f *pflag.FlagSet) {
	l.AddPlaces(f)
	f.DurationVar(&l.Options.Watch, "watch", time.Second,
		"how long to watch before the figures that are rates")
	f.DurationVar(&l.Options.Wait, "wait", 5*time.Second,
		"longest wait for the runtime, file systems and directories")
}

// AddPlaces adds the flags of the configuration's files and of the node's mounts.
func (l *Look) AddPlaces(f *pflag.FlagSet) {
	AddConfig(f, &l.places)
	AddMounts(f, &l.Options.CgroupMount, &l.Options.ProcMount, &l.Options.HostRoot)
}

// AddSocket adds the flag of the agent's socket.
func (l *Look) AddSocket(f *pflag.FlagSet) { addSocket(f, &l.socket) }

// Load checks the flags that Add adds and reads the configuration, as FindOrWarn.
func (l *Look) Load(cmd *cobra.Command, stderr io.Writer) error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"watch", l.Options.Watch}, {"wait", l.Options.Wait}} {
		if f.value <= 0 || f.value > maxDuration {
			return commandline.Usage(fmt.Errorf("--%s %v: want more than 0 and at most %v", f.name, f.value,
				maxDuration))
		}
	}
	return l.FindOrWarn(cmd, stderr)
}

// Find reads the configuration. An error is one of usage.
func (l *Look) Find(ctx context.Context) error {
	l.places.ProcMount = l.Options.ProcMount
	c, err := config.Find(ctx, l.places)
	if err != nil {
		return commandline.Usage(err)
	}
	l.use(c)
	return nil
}

// FindOrWarn is FindOrSalvage for a command that reports a wrong configuration in one line on
// stderr.
func (l *Look) FindOrWarn(cmd *cobra.Command, stderr io.Writer) error {
	wrong, err := l.FindOrSalvage(cmd.Context())
	warn(cmd, stderr, wrong)
	return err
}

// FindOrSalvage reads the configuration, or what can be read of a wrong one: wrong says what is
// wrong with it.
func (l *Look) FindOrSalvage(ctx context.Context) (wrong, err error) {
	if wrong = l.Find(ctx); wrong == nil {
		return nil, nil
	}
	c, ok := config.Salvage(ctx, l.places.Path)
	if ctx.Err() != nil || !ok {
		return nil, wrong
	}
	l.use(c)
	return wrong, nil
}

// use sets the configuration, with the socket at which the agent listens.
func (l *Look) use(c *config.Loaded) {
	l.Options.Config = c
	c.Socket = cmp.Or(l.socket, listenSocket(c.Config))
}

// NodeName returns the node's name: the one of its configuration, of the DaemonSet, or of the
// machine.
func (l *Look) NodeName() string {
	host, _ := os.Hostname()
	return cmp.Or(l.Options.Config.HostnameOverride, os.Getenv("NODE_NAME"), host)
}
