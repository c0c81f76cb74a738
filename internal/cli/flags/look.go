// Package flags defines the flags that several jettison commands share, and reads the
// configuration that they name.
//
//	look.go        Look: flags of a command that reads the node
//	socket.go      Socket: flags of a command that only queries the agent
//	permission.go  Reason: the text of an error, with advice for users without permissions
//	places.go      flags for the configuration files and the node's mounts
//	salvage.go     reading a partly invalid configuration
package flags

import (
	"cmp"
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/commandline"
	"jettison/internal/node/config"
	"jettison/internal/node/observe"
)

// Look holds the flags of a command that reads the node, and the options of that look. Load,
// Find, FindOrWarn and FindOrSalvage set Options.Config.
type Look struct {
	Options observe.Options

	places config.Places
	socket string // overrides the configured agent socket unless empty
}

// Add adds the flags of AddPlaces, --interval and --timeout.
func (l *Look) Add(f *pflag.FlagSet) {
	l.AddPlaces(f)
	commandline.Interval(f, &l.Options.Watch, time.Second,
		[2]time.Duration{time.Millisecond, 10 * time.Minute}, "time over which rates are measured")
	commandline.Timeout(f, &l.Options.Wait, 5*time.Second,
		"timeout for the runtime, file systems and directories")
}

// AddPlaces adds the flags for the configuration files and the node's mounts.
func (l *Look) AddPlaces(f *pflag.FlagSet) {
	AddConfig(f, &l.places)
	AddMounts(f, &l.Options.CgroupMount, &l.Options.ProcMount, &l.Options.HostRoot)
}

// AddSocket adds --socket and --timeout, to a command that reads the node only if no agent answers.
func (l *Look) AddSocket(f *pflag.FlagSet, timeout time.Duration) {
	addSocket(f, &l.socket)
	commandline.Timeout(f, &l.Options.Wait, timeout,
		"timeout for the agent, and for the sources of the node without it")
}

// Find reads the configuration. It returns a usage error if the configuration is invalid.
func (l *Look) Find(ctx context.Context) error {
	l.places.ProcMount = l.Options.ProcMount
	c, err := config.Find(ctx, l.places)
	if err != nil {
		return commandline.Usage(err)
	}
	l.use(c)
	return nil
}

// FindOrWarn reads the configuration like FindOrSalvage, and reports an invalid one in one line on
// stderr.
func (l *Look) FindOrWarn(cmd *cobra.Command, stderr io.Writer) error {
	configErr, err := l.FindOrSalvage(cmd.Context())
	warn(cmd, stderr, configErr)
	return err
}

// FindOrSalvage reads the configuration, or the readable fields of an invalid one. configErr is the
// reason why the configuration is invalid; err is set if no field can be read.
func (l *Look) FindOrSalvage(ctx context.Context) (configErr, err error) {
	if configErr = l.Find(ctx); configErr == nil {
		return nil, nil
	}
	c, ok := config.Salvage(ctx, l.places.Path)
	if ctx.Err() != nil || !ok {
		return nil, configErr
	}
	l.use(c)
	return configErr, nil
}

// use sets the configuration and the socket that the agent listens on.
func (l *Look) use(c *config.Loaded) {
	l.Options.Config = c
	c.Socket = cmp.Or(l.socket, listenSocket(c.Config))
}

// NodeName returns the node's name: hostnameOverride, else $NODE_NAME, else the host name.
func (l *Look) NodeName() string {
	host, _ := os.Hostname()
	return cmp.Or(l.Options.Config.HostnameOverride, os.Getenv("NODE_NAME"), host)
}
