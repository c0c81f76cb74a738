package gc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
	"jettison/internal/node/sources"
	"jettison/reclaim"
)

// triggers maps the values of --trigger.
var triggers = map[string]reclaim.Trigger{"periodic": reclaim.Periodic,
	"diskPressure": reclaim.DiskPressure}

// Command returns the command jettison gc.
func Command(stdin *os.File, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var from, trigger string
	var output commandline.Output
	var yes bool
	var places flags.Look
	var o options
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove dead containers, sandboxes, logs and unused images, or print the plan",
		Long: `gc runs one pass of garbage collection on this node. By the rules of the configuration it removes
dead containers, sandboxes, logs, links, cgroups and images, and prints the outcome of each step. It
checks each step again immediately before the removal.

On a terminal gc asks for confirmation; without a terminal it needs --yes. --dry-run only prints the
plan. With an invalid configuration gc works only with --dry-run. Alongside a kubelet gc only plans,
unless the configuration sets gc: act.

gc knows which pods are gone from the runtime, static manifests, and the state of earlier passes in
--state-dir (default: stateDir in the configuration). See docs/operate/garbage-collection.md.

gc --from DIR plans from files: it prints what garbage collection would remove, in which order and
why. It needs no runtime and removes nothing. DIR holds containers.json ("crictl ps -a -o json"),
sandboxes.json ("crictl pods -o json"), images.json ("crictl images -o json") and gc.json (time,
policy, existing pods). See docs/reference/formats.md.

Exit code 1: a step failed, the runtime did not answer in time, or a file or the policy is invalid.
The other steps are still run.`,
		Example: "  jettison gc --dry-run\n  jettison gc\n  jettison gc --yes -o json\n  jettison gc " +
			"--dry-run --from node1 -o json",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.format, err = output.Format(); err != nil {
				return err
			}
			if from != "" {
				return fromFiles(from, o.format, stdout)
			}
			var ok bool
			if o.trigger, ok = triggers[trigger]; !ok {
				return commandline.Usage(fmt.Errorf("--trigger %q: want periodic or diskPressure", trigger))
			}
			if err = findConfig(cmd, stderr, &places, o.dryRun); err != nil {
				return err
			}
			if !o.dryRun && !yes {
				if err := confirm(stdin, stderr); err != nil {
					return err
				}
			}
			o.config, o.cgroupMount = places.Options.Config.Config, places.Options.CgroupMount
			o.procMount, o.hostRoot = places.Options.ProcMount, places.Options.HostRoot
			if !cmd.Flags().Changed("state-dir") {
				o.stateDir = o.config.StateDir
			}
			if o.runtime, err = sources.Dial(places.Options.Options); err != nil {
				return commandline.Usage(err)
			}
			defer o.runtime.Close()
			return run(cmd.Context(), o, stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "",
		"plan from the files in this directory; remove nothing")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the plan, remove nothing")
	f.BoolVarP(&yes, "yes", "y", false, "remove without confirmation")
	output.Add(f)
	f.StringVar(&trigger, "trigger", "periodic",
		"periodic, or diskPressure (removes more)")
	commandline.Values(f, "trigger", "periodic", "diskPressure")
	f.StringVar(&o.stateDir, "state-dir", "",
		"directory of the state of passes; \"\": keep none (default stateDir)")
	places.AddPlaces(f)
	return cmd
}

// findConfig reads the configuration of a pass. A dry run accepts the readable fields of an invalid
// configuration; a removal does not, because the unreadable fields may protect objects.
func findConfig(cmd *cobra.Command, stderr io.Writer, places *flags.Look, dryRun bool) error {
	if dryRun {
		return places.FindOrWarn(cmd, stderr)
	}
	return places.Find(cmd.Context())
}

// confirm asks on the terminal whether to remove garbage. Without a terminal it returns a usage
// error that asks for --yes.
func confirm(stdin *os.File, stderr io.Writer) error {
	if !terminal.Is(stdin) {
		return commandline.Usage(
			errors.New("gc: cannot ask for confirmation, standard input is not a terminal: use --yes to remove, or --dry-run"))
	}
	_, _ = fmt.Fprint(stderr,
		"Remove dead containers, sandboxes, logs and unused images of this node? [y/N] ")
	answer, _ := bufio.NewReader(stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("gc: nothing removed: not confirmed")
}
