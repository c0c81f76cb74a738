package flags

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/node/config"
)

// LoadOrWarn reads the configuration file of a command that needs only a path from it. If the file
// is invalid, it returns the fields that can be read and reports the error in one line on stderr.
func LoadOrWarn(cmd *cobra.Command, stderr io.Writer, path string) (*config.Loaded, error) {
	c, configErr, err := loadOrSalvage(cmd.Context(), path)
	if err != nil {
		return nil, err
	}
	warn(cmd, stderr, configErr)
	return c, nil
}

// loadOrSalvage reads a configuration file, or the readable fields of an invalid one. configErr is
// the reason why the file is invalid; err is set if no field can be read.
func loadOrSalvage(ctx context.Context, path string) (c *config.Loaded, configErr, err error) {
	if c, err = config.Load(ctx, path); err == nil {
		return c, nil, nil
	}
	configErr = commandline.Usage(err)
	c, ok := config.Salvage(ctx, path)
	if ctx.Err() != nil || !ok {
		return nil, nil, configErr
	}
	return c, configErr, nil
}

// warn reports on stderr that the command uses the readable fields of an invalid configuration. It
// prints nothing if configErr is nil.
func warn(cmd *cobra.Command, stderr io.Writer, configErr error) {
	if configErr != nil {
		fmt.Fprintf(stderr, "jettison: %s: invalid configuration, using the fields that can be read: %s\n",
			cmd.Name(), Reason(configErr))
	}
}
