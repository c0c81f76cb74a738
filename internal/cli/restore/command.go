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
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Put back what an agent left on this node's cgroups, before it is removed for good",
		Long: `restore goes through the node's cgroups and puts back what agents wrote there and noted (extended attributes named jettison):
limits of node allocatable, protection of memory, CPU limits of a pod that was being killed. What somebody else has written since
stays. An agent that ends puts back most by itself; what a crash leaves, and the limits above pods, which stay on purpose, are for
this. It needs root and no runtime, and does nothing while an agent runs. docs/operate/upgrade.md says what else there is to remove.

Exit code 1: something could not be put back; the error names it. It may be run again.`,
		Example: "  jettison restore",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wrong, err := look.FindOrSalvage(cmd.Context())
			if err != nil {
				return err
			}
			if wrong != nil {
				fmt.Fprintln(stdout, "what the configuration says of the agent's places is taken as far as it can be read:", wrong)
			}
			o := look.Options.Options
			o.Act = true
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
			r := options{fs: fs, cgroupRoot: c.CgroupRoot, stateDir: c.StateDir, kubelet: func() bool {
				found, _ := presence.Look()
				return found
			}}
			// else it is another hierarchy than that of systemd here
			if path.Clean(o.CgroupMount) == cgroup.DefaultMount {
				r.tell = limits.TellSystemd(look.Options.HostRoot)
			}
			return run(cmd.Context(), r, stdout)
		},
	}
	look.AddPlaces(cmd.Flags())
	return cmd
}
