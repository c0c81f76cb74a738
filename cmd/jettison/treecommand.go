package main

import (
	"io"

	"github.com/spf13/cobra"
	"golang.org/x/tools/txtar"

	"jettison/internal/nodefiles"
	"jettison/internal/sources"
)

func treeCommand(stdout io.Writer) *cobra.Command {
	var flags lookFlags
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Print the files that jettison reads here, to send with a report",
		Long: `tree prints one txtar archive with the cgroup files that jettison reads, of the root, of what lies directly below it
and of all pods, and a few of /proc: enough to run jettison's tests on. It holds numbers, ids of pods and containers, process ids
and the kernel's version; no names, labels, annotations or content of pods.`,
		Example: "  jettison tree > node.txtar",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.find(cmd.Context()); err != nil {
				return err
			}
			fs, err := sources.OpenCgroups(flags.options.Options)
			if err != nil {
				return err
			}
			defer fs.Close()
			archive, err := nodefiles.Archive(nodefiles.Options{
				Cgroups: fs, CgroupRoot: flags.options.Config.CgroupRoot, ProcMount: flags.options.ProcMount, SysMount: flags.options.SysMount(),
			})
			if err != nil {
				return err
			}
			_, err = stdout.Write(txtar.Format(archive))
			return err
		},
	}
	flags.addPlaces(cmd)
	return cmd
}
