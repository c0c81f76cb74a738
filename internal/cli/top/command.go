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
		Short: "Show the pods of this node by the memory that killing each would free, live",
		Long: `top reads the pods of this node from the kernel, without the agent, and prints for each pod: the
memory that killing it frees at least, its working set and the growth per second, the share of the
last 10 s in which its tasks stalled for memory (-o wide: also for IO and CPU), CPU and threads.
"-" means unknown.

On a terminal, top refreshes until q is pressed; s or the arrow keys change the sort column, which
is marked with a star. Without a terminal, and with -n 1, it prints once. Growth needs two looks, so
that the first output appears after --interval. -o json prints one array of pods, and -o jsonl an
array a line for each output.`,
		Example: "  jettison top\n  jettison top --sort growth --interval 5s\n  jettison top -n 1 -o json | jq '.[0]'",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			format := output.Format
			if o.times > 1 {
				format = output.StreamFormat
			}
			if o.format, err = format(); err != nil {
				return err
			}
			switch {
			case o.times < 0:
				return commandline.Usage(fmt.Errorf("-n %d: want 0 (no limit) or more", o.times))
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
		"number of outputs (0: no limit on a terminal, else one)")
	commandline.Interval(f, &o.interval, 2*time.Second,
		[2]time.Duration{100 * time.Millisecond, time.Hour}, "refresh interval")
	f.StringVar(&o.sort, "sort", sortNames()[0], "sort key: "+
		strings.Join(sortNames(), ", "))
	commandline.Values(f, "sort", sortNames()...)
	output.AddStream(f)
	return cmd
}
