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

// triggers are what a pass can be for.
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
		Short: "Remove dead containers, sandboxes, logs and images of this node, or plan to",
		Long: `gc makes one pass on this node: it removes dead containers, sandboxes, logs, links, cgroups and images by the rules of the
configuration, each step checked again right before it is done, and prints what became of each. On a terminal it asks first; elsewhere it
wants --yes. --dry-run prints the plan, also beside a configuration that is wrong, by which nothing is removed. Beside a kubelet
it only plans, unless the configuration says gc: act. Which pods are gone it knows from the runtime, static manifests and what an
earlier pass has seen, which lies in --state-dir, else in stateDir of the configuration: docs/operate/garbage-collection.md.

gc --from DIR plans from files what garbage collection would remove, in which order and why. It needs no runtime, and
removes nothing. DIR holds containers.json, sandboxes.json and images.json, as "crictl ps -a", "crictl pods" and "crictl images"
print them with -o json, and gc.json: the time, the policy, and which pods there are. docs/reference/formats.md has the format.

A step that failed, a runtime that does not answer or is slow, a malformed file or a policy that cannot be: exit code 1, after the rest.`,
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
			if err = findForGC(cmd, stderr, &places, o.dryRun); err != nil {
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
		"directory of files to plan from; nothing else is looked at, and nothing removed")
	f.BoolVar(&o.dryRun, "dry-run", false, "plan only")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask before anything is removed")
	output.Add(f, "")
	f.StringVar(&trigger, "trigger", "periodic",
		"periodic, or diskPressure: what the periodic pass keeps for convenience goes too")
	f.StringVar(&o.stateDir, "state-dir", "",
		"where is kept what outlives a pass; \"\": nothing is (default stateDir of the configuration)")
	places.AddPlaces(f)
	return cmd
}

// findForGC is the configuration of a pass. A plan is made by what can be read of a wrong one, and
// nothing is removed by it: what could not be read may be what is to stay.
func findForGC(cmd *cobra.Command, stderr io.Writer, places *flags.Look, dryRun bool) error {
	if dryRun {
		return places.FindOrWarn(cmd, stderr)
	}
	return places.Find(cmd.Context())
}

// confirm asks a person whether garbage is to be removed. Where nobody can answer, the flag has to
// say so.
func confirm(stdin *os.File, stderr io.Writer) error {
	if !terminal.Is(stdin) {
		return commandline.Usage(
			errors.New("gc: it removes: say --yes, or --dry-run for the plan alone: standard input is no terminal to ask on"))
	}
	_, _ = fmt.Fprint(stderr,
		"Remove dead containers, sandboxes, logs and unused images of this node? [y/N] ")
	answer, _ := bufio.NewReader(stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("gc: nothing was removed: it was not wanted")
}
