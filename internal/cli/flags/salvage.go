package flags

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/node/config"
)

// LoadOrWarn reads the configuration file of a command that needs only a path of it. Of a wrong
// configuration it returns what can be read, and reports what is wrong in one line on stderr.
func LoadOrWarn(cmd *cobra.Command, stderr io.Writer, path string) (*config.Loaded, error) {
	c, wrong, err := loadOrSalvage(cmd.Context(), path)
	if err != nil {
		return nil, err
	}
	warn(cmd, stderr, wrong)
	return c, nil
}

// loadOrSalvage reads a configuration file, or what can be read of a wrong one: wrong says what is
// wrong with it.
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

// warn reports what is wrong with a configuration of which a command uses what could be read; nil:
// nothing.
func warn(cmd *cobra.Command, stderr io.Writer, wrong error) {
	if wrong != nil {
		fmt.Fprintf(stderr, "jettison: %s: the configuration is wrong, and what can be read of it is gone by: %s\n",
			cmd.Name(), output.OneLine(wrong.Error()))
	}
}
