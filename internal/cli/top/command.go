package top

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison top.
func Command(stdin *os.File, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	o := options{stdin: stdin}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the pods of this node by what killing each would free, again and again",
		Long: `top reads the pods of this node from the kernel, again and again: what killing each would free for sure, its working set and by how
much that grows in a second, the share of the last 10 s in which tasks of it stalled for memory (wide: for IO and CPU too), CPU, threads.
The agent is not asked. The sign - : not known.

On a terminal it goes on until q is typed; s or the arrow keys change what pods are sorted by, which is the column with a star. Elsewhere,
and with -n 1, it prints once. What pods grow by is a difference, so that nothing is printed before --every has passed.`,
		Example: "  jettison top\n  jettison top --sort growth --every 5s\n  jettison top -n 1 -o json | jq '.[0]'",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.format, err = output.Format(); err != nil {
				return err
			}
			switch {
			case o.times < 0:
				return commandline.Usage(fmt.Errorf("-n %d: want 0 (until it is ended) or more", o.times))
			case o.every < 100*time.Millisecond || o.every > time.Hour:
				return commandline.Usage(fmt.Errorf("--every %v: want 100ms to 1h", o.every))
			case !slices.Contains(sortNames(), o.sort):
				return commandline.Usage(fmt.Errorf("--sort %.40q: want one of %s", o.sort,
					strings.Join(sortNames(), ", ")))
			}
			if err := look.FindOrWarn(cmd, stderr); err != nil {
				return err
			}
			o.sources = look.Options.Options
			return run(cmd.Context(), o, stdout)
		},
	}
	look.AddPlaces(cmd.Flags())
	f := cmd.Flags()
	f.IntVarP(&o.times, "times", "n", 0,
		"how often (0: on a terminal until it is ended, elsewhere once)")
	f.DurationVar(&o.every, "every", 2*time.Second, "time between two looks")
	f.StringVar(&o.sort, "sort", sortNames()[0], "what pods are sorted by: "+
		strings.Join(sortNames(), ", "))
	output.Add(f, "")
	return cmd
}
