package restore

import (
	"fmt"
	"io"
	"path"

	"github.com/spf13/cobra"

	"jettison/cgroup"
	"jettison/internal/base/commandline"
	"jettison/internal/cli/flags"
	"jettison/internal/node/kubeletdetect"
	"jettison/internal/node/limits"
	"jettison/internal/node/sources"
)

// Command returns the command jettison restore.
func Command(stdout io.Writer) *cobra.Command {
	var look flags.Look
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore the cgroup settings that agents changed, before you remove jettison",
		Long: `restore visits all cgroups of the node and restores the settings that agents changed and recorded in
extended attributes named jettison: limits of node allocatable, memory protection, and frozen
processes of a pod that is killed. Settings that another program changed later are kept.

An agent restores most settings when it stops. restore handles the rest: leftovers of a crash, and
the limits above pods, which an agent keeps on purpose. It needs root but no runtime, and refuses to
run while an agent runs. docs/operate/upgrade.md lists what else to remove.

--dry-run prints the settings of the agent and changes nothing, also while an agent runs. It does
not check whether another program changed them later.

Exit code 1: a setting could not be restored; the error names it. You can run restore again.`,
		Example: "  jettison restore --dry-run\n  jettison restore",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			configErr, err := look.FindOrSalvage(cmd.Context())
			if err != nil {
				return err
			}
			if configErr != nil {
				fmt.Fprintln(stdout, "invalid configuration, using the fields that can be read:",
					flags.Reason(configErr))
			}
			o := look.Options.Options // without Act: run checks what it requires
			fs, err := sources.OpenCgroups(o)
			if err != nil {
				return err
			}
			defer fs.Close()
			c := look.Options.Config
			presence, err := kubeletdetect.OpenPresence(
				kubeletdetect.PresenceOptions{ProcMount: look.Options.ProcMount, StateDir: c.StateDir,
					ReadOnly: true})
			if err != nil {
				return err
			}
			r := options{fs: fs, cgroupRoot: c.CgroupRoot, stateDir: c.StateDir, dryRun: dryRun,
				kubelet: func() bool {
					found, _ := presence.Look()
					return found
				}}
			// any other mount is not systemd's hierarchy
			if path.Clean(o.CgroupMount) == cgroup.DefaultMount {
				r.systemd = limits.SystemdUpdater(look.Options.HostRoot)
			}
			return run(cmd.Context(), r, stdout)
		},
	}
	look.AddPlaces(cmd.Flags())
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the settings, restore none")
	return cmd
}
