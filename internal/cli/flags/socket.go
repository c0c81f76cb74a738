package flags

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/node/config"
	"jettison/internal/node/socketpath"
)

// Socket holds the flags of a command that needs the agent's socket and nothing else of the
// configuration.
type Socket struct{ path, config string }

// Add adds the flags.
func (s *Socket) Add(f *pflag.FlagSet) {
	addSocket(f, &s.path)
	AddConfigFile(f, &s.config)
}

func addSocket(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "socket", "", "the agent's socket (default socket of the configuration)")
}

// Find returns the socket that --socket names, else the agent's by the configuration. It reports a
// wrong configuration on stderr.
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

// Candidates returns every socket at which the agent may listen; some may be empty. wrong says what
// is wrong with the configuration.
func (s *Socket) Candidates(ctx context.Context) (sockets []string, wrong, err error) {
	if s.path != "" {
		return []string{s.path}, nil, nil
	}
	c, wrong, err := loadOrSalvage(ctx, s.config)
	if err != nil {
		return nil, nil, err
	}
	return append([]string{c.Socket}, leftSockets(c.Config)...), wrong, nil
}

// NoSocket returns the error of a command where nothing names a socket.
func NoSocket(command string) error {
	return fmt.Errorf("%s: socket is empty in the configuration, so the agent cannot be asked: name "+
		"another one with --socket", command)
}

// leftSockets returns the sockets that an agent has recorded as its own. An agent reads socket and
// stateDir at its start, and the configuration may have changed since. A former stateDir other than
// the default is unknown.
func leftSockets(c *config.Config) []string {
	return []string{socketpath.Left(c.StateDir), socketpath.Left(config.Default().StateDir)}
}

// listenSocket returns the configuration's socket, or a recorded one where that does not exist;
// empty: none is configured.
func listenSocket(c *config.Config) string {
	for _, path := range append([]string{c.Socket}, leftSockets(c)...) {
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
			return path
		}
	}
	return c.Socket
}
