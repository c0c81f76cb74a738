package commandline

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// boundsKey is the annotation of a duration: its lower and upper bound.
const boundsKey = "jettison_bounds"

// Names of flags, which are the same in all commands.
const (
	timeoutFlag  = "timeout"
	intervalFlag = "interval"
)

// Timeout adds the flag --timeout, the longest wait of a command.
func Timeout(f *pflag.FlagSet, to *time.Duration, value time.Duration, usage string) {
	bounded(f, to, timeoutFlag, value, [2]time.Duration{time.Millisecond, time.Hour}, usage)
}

// Interval adds the flag --interval, the time between two looks or outputs of a command.
func Interval(f *pflag.FlagSet, to *time.Duration, value time.Duration, bounds [2]time.Duration,
	usage string) {
	bounded(f, to, intervalFlag, value, bounds, usage)
}

func bounded(f *pflag.FlagSet, to *time.Duration, flag string, value time.Duration,
	bounds [2]time.Duration, usage string) {
	f.DurationVar(to, flag, value, usage)
	_ = f.SetAnnotation(flag, boundsKey, // fails only for an unknown flag
		[]string{bounds[0].String(), bounds[1].String()})
}

// checkDurations returns an error about a duration that is out of its bounds.
func checkDurations(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		bounds := f.Annotations[boundsKey]
		if len(bounds) == 0 || err != nil {
			return
		}
		// cannot fail: all are from a time.Duration
		value, _ := time.ParseDuration(f.Value.String())
		low, _ := time.ParseDuration(bounds[0])
		high, _ := time.ParseDuration(bounds[1])
		if value < low || value > high {
			err = Usage(fmt.Errorf("--%s %v: want %v to %v", f.Name, value, low, high))
		}
	})
	return err
}
