package flags

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/commandline"
	"jettison/internal/node/config"
	"jettison/internal/node/socketpath"
)

// Socket holds the flags of a command that needs only the agent's socket from the configuration.
type Socket struct {
	Timeout      time.Duration // of a query, with AddTimeout
	path, config string
}

// Add adds the flags.
func (s *Socket) Add(f *pflag.FlagSet) {
	addSocket(f, &s.path)
	AddConfigFile(f, &s.config)
}

// AddTimeout adds --timeout.
func (s *Socket) AddTimeout(f *pflag.FlagSet, value time.Duration) {
	commandline.Timeout(f, &s.Timeout, value, "timeout for the answer of the agent")
}

func addSocket(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "socket", "", "the agent's socket (default: socket in the configuration)")
}

// Find returns the socket that --socket names, else the one in the configuration. It reports an
// invalid configuration on stderr.
func (s *Socket) Find(cmd *cobra.Command, stderr io.Writer) (string, error) {
	if s.path != "" {
		return s.path, nil
	}
	c, err := LoadOrWarn(cmd, stderr, s.config)
	if err != nil {
		return "", err
	}
	if path := listenSocket(c.Config); path != "" {
		return path, nil
	}
	return "", NoSocket(cmd.Name())
}

// Candidates returns every socket that the agent may listen on; some may be empty. configErr is the
// reason why the configuration is invalid.
func (s *Socket) Candidates(ctx context.Context) (sockets []string, configErr, err error) {
	if s.path != "" {
		return []string{s.path}, nil, nil
	}
	c, configErr, err := loadOrSalvage(ctx, s.config)
	if err != nil {
		return nil, nil, err
	}
	return append([]string{c.Socket}, recordedSockets(c.Config)...), configErr, nil
}

// NoSocket returns the error that a command reports if neither --socket nor the configuration
// specifies a socket.
func NoSocket(command string) error {
	return fmt.Errorf("%s: socket is empty in the configuration, so the agent cannot be queried: "+
		"name a socket with --socket", command)
}

// recordedSockets returns the sockets that agents recorded in stateDir. An agent reads socket and
// stateDir only at its start, and the configuration may have changed after that. A former stateDir
// other than the default is unknown.
func recordedSockets(c *config.Config) []string {
	return []string{socketpath.Load(c.StateDir), socketpath.Load(config.Default().StateDir)}
}

// listenSocket returns the first existing socket among the configured and the recorded ones, else
// the configured one, which may be empty.
func listenSocket(c *config.Config) string {
	for _, path := range append([]string{c.Socket}, recordedSockets(c)...) {
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
			return path
		}
	}
	return c.Socket
}
